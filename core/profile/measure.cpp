// Which stages are timed, and what follows from their times.
#include "core/profile/measure.hpp"

#include <algorithm>
#include <cmath>

#include "core/comm/message_buffers.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/deck/print.hpp"
#include "core/deck/rules.hpp"
#include "core/model/parameter_list.hpp"
#include "core/profile/link_probe.hpp"
#include "core/profile/machine.hpp"
#include "core/profile/median.hpp"
#include "core/profile/probe.hpp"
#include "core/profile/probe_stages.hpp"
#include "core/train/gather.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

using Beat = std::function<void()>;

constexpr int rounds = 4;  // visits of each probe, so that a disturbance of some seconds spoils no probe wholly

struct Probed {
  ProbeStage stage;
  LayerCounts counts;
  ProbeSamples whole, split;
};

std::vector<Probed> stages_to_time(const Deck& deck, int stages) {
  int longest = 1;
  for (const StageLayers& stage : stage_layers(deck, stages)) longest = std::max(longest, stage.blocks);
  std::vector<Probed> probes;
  for (const ProbeStage& stage : probe_stages(model_config(deck), longest)) {
    const ModelConfig model = with_layers(model_config(deck), stage.layers.first_block + stage.layers.blocks);
    probes.push_back({stage, count_layers(model, stage.layers), {}, {}});
  }
  return probes;
}

struct Solver {
  const std::vector<Probed>& probes;
  double residual = 0;       // largest relative difference of a large stage
  std::string undetermined;  // of all kinds of work

  LayerTimes operator()(const char* name, ProbeSamples Probed::*samples, double ActionSeconds::*kind, Receives receives) {
    std::vector<StageTiming> timings;
    // Large stages miss the caches more often than one block does: the sums must be right for stages of the real size.
    constexpr double small_weight = 0.1;
    for (const Probed& probe : probes) {
      timings.push_back({probe.counts, (probe.*samples).typical().*kind, probe.stage.large ? 1.0 : small_weight});
    }
    const LayerSolution solution = solve_layers(timings, receives);
    for (std::size_t i = 0; i < timings.size(); ++i) {
      if (!probes[i].stage.large) continue;
      const double sum = stage_seconds(solution.times, timings[i].layers, receives);
      residual = std::max(residual, std::abs(sum / timings[i].seconds - 1));
    }
    for (const std::string& group : solution.undetermined) {
      undetermined += (undetermined.empty() ? "" : "; ") + std::string(name) + ": " + group;
    }
    return solution.times;
  }
};

double seconds_of_update(const Deck& deck, int stages, const StageLayers& layers, WeightRule rule, BatchSource& source,
                         MPI_Comm comm, const Beat& beat) {
  ProbeSamples samples;
  run_probe(deck, {stages, layers, false, rule}, source, comm, samples, beat);
  return samples.typical().update;
}

double seconds_of_copy(const Deck& deck) {
  constexpr int copies = 50;
  const MessageBuffers from("profile_from", 1, message_floats(deck));
  const MessageBuffers to("profile_to", 1, message_floats(deck));
  std::vector<double> seconds;
  for (int i = 0; i < copies; ++i) {
    const double begin = MPI_Wtime();
    Kokkos::deep_copy(ExecutionSpace(), to.device(), from.device());
    fence(ExecutionSpace(), "before the clock is read, because the copy may be asynchronous");
    seconds.push_back(MPI_Wtime() - begin);
  }
  return median(std::move(seconds));
}

// `undetermined` depends on the stages alone, not on their times.
RankProfile measure_rank(const Deck& deck, int stages, BatchSource& source, MPI_Comm comm, const Beat& beat,
                         std::string& undetermined) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "measuring together");
  std::vector<Probed> probes = stages_to_time(deck, stages);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t turn = 0; turn < 2 * probes.size(); ++turn) {
      const std::size_t number = probe_of_turn(turn, 2 * probes.size(), round, rounds, rank);
      Probed& probe = probes[number / 2];
      const bool split = number % 2 == 1;
      run_probe(deck, {stages, probe.stage.layers, split, WeightRule::current}, source, comm, split ? probe.split : probe.whole,
                beat);
    }
  }
  RankProfile result;
  Solver solve{probes, 0, ""};
  result.forward = solve("forward", &Probed::whole, &ActionSeconds::forward, Receives::activation);
  result.backward = solve("backward", &Probed::whole, &ActionSeconds::backward, Receives::gradient);
  result.backward_input = solve("input gradient", &Probed::split, &ActionSeconds::backward_input, Receives::gradient);
  result.backward_weight = solve("weight gradient", &Probed::split, &ActionSeconds::backward_weight, Receives::nothing);
  result.update = solve("update", &Probed::whole, &ActionSeconds::update, Receives::nothing);
  result.residual = solve.residual;
  undetermined = solve.undetermined;

  const StageLayers layers = probes.back().stage.layers;
  const ModelConfig model = with_layers(model_config(deck), layers.first_block + layers.blocks);
  const auto parameters = static_cast<double>(buffer_floats(parameter_list(model, layers)));
  const double plain = seconds_of_update(deck, stages, layers, WeightRule::current, source, comm, beat);
  const double copying = seconds_of_update(deck, stages, layers, WeightRule::double_buffered, source, comm, beat);
  const double correcting = seconds_of_update(deck, stages, layers, WeightRule::corrected, source, comm, beat);
  result.weight_copy = std::max(0.0, copying - plain) / parameters;
  result.weight_correct = std::max(0.0, correcting - plain) / parameters;
  result.message_copy = seconds_of_copy(deck);
  return result;
}

LayerBytes bytes_of(const Deck& deck, int stages, const StageLayers& layers) {
  KokkosStageOptions options = probe_options(deck, {stages, layers, false, WeightRule::current});
  LayerBytes bytes;
  for (const ParameterEntry& entry : parameter_list(options.model, layers)) {
    bytes.parameters += static_cast<std::int64_t>(entry.size);
  }
  // What one more microbatch in flight takes.
  options.activation_slots = 2;
  bytes.activations = static_cast<std::int64_t>(planned_memory(options).activations);
  options.activation_slots = 1;
  bytes.activations -= static_cast<std::int64_t>(planned_memory(options).activations);
  return bytes;
}

LayerBytes difference(const LayerBytes& more, const LayerBytes& less) {
  return {more.parameters - less.parameters, std::max<std::int64_t>(0, more.activations - less.activations)};
}

void fill_bytes(const Deck& deck, int stages, Profile& profile) {
  const ModelConfig model = model_config(deck);
  for (int b = model.layers - 1; b >= 0; --b) {
    profile.of(layer_kind(model, b)) = bytes_of(deck, stages, {false, b, 1, false});
  }
  const LayerBytes with_embedding = bytes_of(deck, stages, {true, 0, 1, false});
  profile.embedding = difference(with_embedding, bytes_of(deck, stages, {false, 0, 1, false}));
  profile.head = difference(bytes_of(deck, stages, {true, 0, 1, true}), with_embedding);
}

}  // namespace

Profile measure_profile(const Deck& deck, BatchSource& source, MPI_Comm comm, const Beat& beat) {
  const Communicator all = Communicator::duplicate(comm);
  Profile profile;
  profile.model = model_fingerprint(deck);
  profile.machine = machine_of(all.get());
  profile.deck = print_deck(deck, false);
  profile.message_bytes = message_floats(deck) * static_cast<std::int64_t>(sizeof(float));
  const int stages = stages_of(deck, all.size());
  fill_bytes(deck, stages, profile);
  const RankProfile mine = measure_rank(deck, stages, source, all.get(), beat, profile.undetermined);
  for (const auto& rank : gather(all.get(), std::vector<RankProfile>{mine})) profile.ranks.push_back(rank.front());
  profile.link = measure_links(deck, all.get());
  return profile;
}

}  // namespace minipipe::core
