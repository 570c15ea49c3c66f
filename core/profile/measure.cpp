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
#include "core/profile/probe.hpp"
#include "core/train/gather.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

constexpr int rounds = 3;  // visits of each probe, so that a disturbance of some seconds spoils no probe wholly

struct Probed {
  StageLayers layers;
  ProbeSamples whole, split;
};

// Stages that tell the layers apart: each kind of stage with one block and with as many as a stage of the deck has. What a
// block costs depends on what else is in the caches, so the larger of the two is as large as the real one.
std::vector<Probed> stages_to_time(const Deck& deck, int stages) {
  int blocks = 2;
  for (const StageLayers& stage : stage_layers(deck, stages)) blocks = std::max(blocks, stage.blocks);
  std::vector<Probed> probes;
  for (const int b : {1, blocks}) {
    probes.push_back({{true, 0, b, true}, {}, {}});
    if (deck.model.tied) continue;
    probes.push_back({{true, 0, b, false}, {}, {}});
    probes.push_back({{false, 0, b, false}, {}, {}});
    probes.push_back({{false, 0, b, true}, {}, {}});
  }
  return probes;
}

LayerTimes solve(const std::vector<Probed>& probes, ProbeSamples Probed::*samples, double ActionSeconds::*kind,
                 Receives receives, double* residual) {
  std::vector<StageTiming> timings;
  // Large stages miss the caches more often than one block does: the sums must be right for stages of the real size.
  constexpr double small_weight = 0.1;
  const int largest = probes.back().layers.blocks;
  for (const Probed& probe : probes) {
    timings.push_back({probe.layers, (probe.*samples).medians().*kind, probe.layers.blocks == largest ? 1.0 : small_weight});
  }
  const LayerTimes times = solve_layers(timings, receives);
  for (const StageTiming& timing : timings) {
    if (timing.layers.blocks < largest) continue;
    *residual = std::max(*residual, std::abs(stage_seconds(times, timing.layers, receives) / timing.seconds - 1));
  }
  return times;
}

double seconds_of_update(const Deck& deck, int stages, const StageLayers& layers, WeightRule rule, BatchSource& source,
                         MPI_Comm comm) {
  ProbeSamples samples;
  run_probe(deck, {stages, layers, false, rule}, source, comm, samples);
  return samples.medians().update;
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
  std::nth_element(seconds.begin(), seconds.begin() + copies / 2, seconds.end());
  return seconds[copies / 2];
}

RankProfile measure_rank(const Deck& deck, int stages, BatchSource& source, MPI_Comm comm) {
  std::vector<Probed> probes = stages_to_time(deck, stages);
  for (int round = 0; round < rounds; ++round) {
    for (Probed& probe : probes) {
      run_probe(deck, {stages, probe.layers, false, WeightRule::current}, source, comm, probe.whole);
      run_probe(deck, {stages, probe.layers, true, WeightRule::current}, source, comm, probe.split);
    }
  }
  RankProfile result;
  double* residual = &result.residual;
  result.forward = solve(probes, &Probed::whole, &ActionSeconds::forward, Receives::activation, residual);
  result.backward = solve(probes, &Probed::whole, &ActionSeconds::backward, Receives::gradient, residual);
  result.backward_input = solve(probes, &Probed::split, &ActionSeconds::backward_input, Receives::gradient, residual);
  result.backward_weight = solve(probes, &Probed::split, &ActionSeconds::backward_weight, Receives::nothing, residual);
  result.update = solve(probes, &Probed::whole, &ActionSeconds::update, Receives::nothing, residual);

  const StageLayers layers = probes.back().layers;
  const auto parameters = static_cast<double>(buffer_floats(parameter_list(model_config(deck), layers)));
  const double plain = seconds_of_update(deck, stages, layers, WeightRule::current, source, comm);
  const double copying = seconds_of_update(deck, stages, layers, WeightRule::double_buffered, source, comm);
  const double correcting = seconds_of_update(deck, stages, layers, WeightRule::corrected, source, comm);
  result.weight_copy = std::max(0.0, copying - plain) / parameters;
  result.weight_correct = std::max(0.0, correcting - plain) / parameters;
  result.message_copy = seconds_of_copy(deck);
  return result;
}

std::int64_t parameters_in(const Deck& deck, const StageLayers& layers) {
  std::int64_t sum = 0;
  for (const ParameterEntry& entry : parameter_list(model_config(deck), layers)) sum += static_cast<std::int64_t>(entry.size);
  return sum;
}

}  // namespace

Profile measure_profile(const Deck& deck, BatchSource& source, MPI_Comm comm) {
  const Communicator all = Communicator::duplicate(comm);
  Profile profile;
  profile.model = model_fingerprint(deck);
  profile.machine = machine_of(all.get());
  profile.deck = print_deck(deck, false);
  profile.message_bytes = message_floats(deck) * static_cast<std::int64_t>(sizeof(float));
  profile.block_parameters = parameters_in(deck, {false, 0, 1, false});
  profile.embedding_parameters = parameters_in(deck, {true, 0, 1, false}) - profile.block_parameters;
  profile.head_parameters = parameters_in(deck, {true, 0, 1, true}) - profile.embedding_parameters - profile.block_parameters;
  const RankProfile mine = measure_rank(deck, stages_of(deck, all.size()), source, all.get());
  for (const auto& rank : gather(all.get(), std::vector<RankProfile>{mine})) profile.ranks.push_back(rank.front());
  profile.link = measure_links(deck, all.get());
  return profile;
}

}  // namespace minipipe::core
