#include "core/deck/rules.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/deck/emulated_times.hpp"
#include "core/deck/hybrid_rules.hpp"
#include "core/deck/replica_rules.hpp"
#include "core/deck/rule_list.hpp"
#include "core/deck/schema.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {
namespace {

void check_transport(Rules& rules, const Deck& deck) {
  rules.require(deck.parallel.transport != "nccl" || !deck.emulate.enabled, "parallel", "transport",
                "an emulated run computes on no GPU; use \"mpi\" with [emulate]");
  rules.require(deck.parallel.staging == "host" || !deck.emulate.enabled, "parallel", "staging",
                "an emulated run has no device memory to hand on; use \"host\" with [emulate]");
}

void check_training(Rules& rules, const Deck& deck) {
  const Deck::Run& run = deck.run;
  const Deck::Model& model = deck.model;
  const Deck::Train& train = deck.train;
  rules.require(model.width % model.heads == 0, "model", "width",
                "is not a multiple of model.heads = " + str(model.heads) + "; change one of them");
  const int kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  rules.require(model.heads % kv_heads == 0, "model", "kv_heads",
                "does not divide model.heads = " + str(model.heads) + "; change one of them, or use 0 for as many");
  rules.require(model.family != "gpt2" || kv_heads == model.heads, "model", "kv_heads",
                "model.family = \"gpt2\" has as many key-value heads as heads; use 0, or model.family = \"llama\"");
  rules.require(model.family == "gpt2" || model.width % model.heads != 0 || model.width / model.heads % 2 == 0, "model",
                "heads",
                "rotary positions turn pairs of features, but model.width / model.heads = " + str(model.width / model.heads) +
                    " is odd; change one of them");
  rules.require(train.sequence <= model.context, "train", "sequence",
                "is longer than model.context = " + str(model.context) + "; lower it or raise model.context");
  rules.require(std::int64_t{train.microbatch_size} * train.sequence <= std::numeric_limits<int>::max(), "train",
                "microbatch_size",
                "times train.sequence is more tokens than " + str(std::numeric_limits<int>::max()) + "; lower one of them");
  rules.require(deck.schedule.chunks <= model.layers + 2, "schedule", "chunks",
                "is more than the model's " + plural(model.layers, "layer") + " and its ends; lower it");
  rules.require(train.warmup_steps <= run.steps, "train", "warmup_steps",
                "is more than run.steps = " + str(run.steps) + "; lower it or raise run.steps");
  rules.require(train.min_learning_rate <= train.learning_rate, "train", "min_learning_rate",
                "is above train.learning_rate = " + to_toml(train.learning_rate) + "; lower it or raise train.learning_rate");
  rules.require(deck.schedule.name != "plan" || !deck.schedule.plan.empty(), "schedule", "plan",
                "schedule.name = \"plan\" needs a CSV plan, as minipipe simulate --export writes it");
  rules.require(deck.schedule.synchronous_updates <= run.steps, "schedule", "synchronous_updates",
                "is more than run.steps = " + str(run.steps) + "; lower it or raise run.steps");
}

schedules::Plan read_plan(const std::string& file) {
  std::ifstream stream(file);
  if (!stream)
    throw InputError("schedule.plan = \"" + file +
                     "\": cannot be read; give a CSV plan, as minipipe simulate --export writes it");
  return schedules::read_csv(stream, file);
}

// The stages a plan file names. 1 if the file says nothing useful: its own check will tell.
int stages_of_plan(const std::string& file) {
  int stages = 1;
  for (const auto& rank : read_plan(file).ranks) {
    for (const auto& action : rank) stages = std::max(stages, action.stage + 1);
  }
  return stages;
}

void check_stages(Rules& rules, const Deck& deck, int ranks) {
  const int stages = stages_of(deck, ranks);
  const std::string stages_text = plural(stages, "stage");
  const int data = deck.parallel.data;
  if (deck.parallel.stages == 0 && deck.schedule.name != "plan") {
    rules.require(ranks % data == 0, "parallel", "data",
                  plural(ranks, "rank") + " cannot be split into " + plural(data, "replica") +
                      "; start a multiple of parallel.data ranks (mpirun -n N), or change parallel.data");
  } else {
    const int chunks = chunks_of(deck);
    const std::int64_t needed = static_cast<std::int64_t>(data) * pipeline_ranks(deck, stages);
    rules.require(stages % chunks == 0, "parallel", "stages",
                  "is not a multiple of the " + str(chunks) + " stages that schedule.name = " +
                      to_toml(Value(deck.schedule.name)) + " puts on each rank; change it or schedule.chunks");
    rules.require(ranks == data || ranks == needed, "parallel", "stages",
                  plural(ranks, "rank") + " do not fit parallel.data * parallel.stages = " + str(data) + " * " + str(stages) +
                      (chunks > 1 ? " with " + str(chunks) + " stages per rank" : "") + "; start " + plural(needed, "rank") +
                      " (mpirun -n " + str(needed) + "), or " + str(data) + " for all stages" +
                      (data > 1 ? " of a replica" : "") + " in one process, or set parallel.stages = 0");
  }

  const std::vector<int>& partition = deck.schedule.partition;
  // A written partition may leave the first and the last stage without blocks.
  rules.require(stages <= deck.model.layers + (partition.empty() ? 0 : 2), "model", "layers",
                "is fewer than the " + stages_text + "; start fewer ranks, lower parallel.stages or raise model.layers");
  if (!partition.empty()) {
    rules.require(static_cast<int>(partition.size()) == stages, "schedule", "partition",
                  "has length " + str(static_cast<std::int64_t>(partition.size())) + " for " + stages_text +
                      "; list the layers of each stage, or [] for a balanced partition");
    const auto sum = std::accumulate(partition.begin(), partition.end(), std::int64_t{0});
    rules.require(sum == deck.model.layers, "schedule", "partition",
                  "adds up to " + str(sum) + ", not to model.layers = " + str(deck.model.layers) +
                      "; list the layers of each stage, or [] for a balanced partition");
  }
  const std::vector<double>& factors = deck.emulate.stage_factors;
  rules.require(factors.empty() || static_cast<int>(factors.size()) == stages, "emulate", "stage_factors",
                "has length " + str(static_cast<std::int64_t>(factors.size())) + " for " + stages_text +
                    "; give one factor per stage, or [] for 1 everywhere");
  for (const auto& [key, list] : stage_time_lists(deck)) {
    rules.require(list.empty() || static_cast<int>(list.size()) == stages, "emulate", key,
                  "has length " + str(static_cast<std::int64_t>(list.size())) + " for " + stages_text +
                      "; give one time per stage, or [] to leave it out");
  }

  const std::vector<double>& latencies = deck.emulate.link_latencies_ms;
  rules.require(latencies.empty() || static_cast<int>(latencies.size()) == stages - 1, "emulate", "link_latencies_ms",
                "has length " + str(static_cast<std::int64_t>(latencies.size())) + " for " + plural(stages - 1, "link") +
                    "; give one latency per link, or [] for link_latency_ms everywhere");

  rules.require(!deck.model.tied || stages == 1, "model", "tied",
                "embedding and head are on different stages (" + stages_text + "); set it to false, or use one stage");

  if (deck.train.clip == "global") {
    rules.require(!schedules::is_asynchronous(deck.schedule.name), "train", "clip",
                  "schedule.name = " + to_toml(Value(deck.schedule.name)) +
                      " is asynchronous: stages update at different times, and there is no global gradient norm "
                      "without a barrier; use \"stage\" or \"none\", or a flush schedule (gpipe, 1f1b)");
    rules.require(chunks_of(deck) == 1 && deck.schedule.name != "plan", "train", "clip",
                  "needs one stage per rank, which schedule.name = " + to_toml(Value(deck.schedule.name)) +
                      " does not have; use \"stage\" or \"none\"");
    rules.require(ranks > data || stages == 1, "train", "clip",
                  stages_text + " in one process have no global gradient norm; use \"stage\" or \"none\", or start " +
                      str(static_cast<std::int64_t>(data) * stages) + " ranks");
  }
}

}  // namespace

int chunks_of(const Deck& deck) {
  if (deck.schedule.name == "interleaved") return deck.schedule.chunks;
  return deck.schedule.name == "zb-v" ? 2 : 1;
}

int pipeline_ranks(const Deck& deck, int stages) {
  if (deck.schedule.name != "plan" || deck.schedule.plan.empty()) return std::max(1, stages / chunks_of(deck));
  return static_cast<int>(read_plan(deck.schedule.plan).ranks.size());
}

int stages_of(const Deck& deck, int ranks) {
  if (deck.parallel.stages > 0) return deck.parallel.stages;
  if (deck.schedule.name == "plan") return stages_of_plan(deck.schedule.plan);
  const std::int64_t stages = std::int64_t{std::max(1, ranks / std::max(1, deck.parallel.data))} * chunks_of(deck);
  return static_cast<int>(std::min<std::int64_t>(stages, std::numeric_limits<int>::max()));
}

void check_rules(const Deck& deck, int ranks) {
  Rules rules(deck);
  check_transport(rules, deck);
  check_training(rules, deck);
  check_hybrid(rules, deck);
  check_replication(rules, deck);
  if (deck.schedule.name != "plan" || !deck.schedule.plan.empty()) {
    check_stages(rules, deck, ranks);
    check_replicas_and_stages(rules, deck, ranks, stages_of(deck, ranks));
  }
  if (!rules.text().empty()) throw InputError(rules.text());
}

}  // namespace minipipe::core
