#include "core/deck/replica_rules.hpp"

#include <string>

#include "core/deck/schema.hpp"
#include "core/deck/stage_mask_rules.hpp"
#include "core/model/mlp_rule.hpp"
#include "schedules/error.hpp"
#include "schedules/policy/versions.hpp"

namespace minipipe::core {
namespace {

std::string quoted(const std::string& word) { return to_toml(Value(word)); }

// The setting that shards weights over replicas; empty if none does.
std::string sharding(const Deck& deck) {
  if (deck.parallel.mode == "fsdp") return "parallel.mode = \"fsdp\"";
  return deck.parallel.mode == "sdp" && deck.sdp.fsdp ? "sdp.fsdp = true" : "";
}

// A key of [sdp] set under another mode would be without effect, silently.
void check_unused(Rules& rules, const Deck& deck) {
  static const Deck defaults;
  for (const Entry& entry : schema()) {
    if (entry.block != "sdp") continue;
    rules.require(entry.get(deck) == entry.get(defaults), entry.block, entry.key,
                  "is for parallel.mode = \"sdp\", not " + quoted(deck.parallel.mode) + "; leave it out, or change the mode");
  }
}

void check_parameter_averages(Rules& rules, const Deck& deck) {
  const Deck::Sdp& sdp = deck.sdp;
  if (sdp.sync == "gradient") {
    rules.require(sdp.period == 1, "sdp", "period",
                  "sdp.sync = \"gradient\" averages at every update; use 1, or sdp.sync = \"parameter\"");
    return;
  }
  rules.require(!sdp.fsdp, "sdp", "sync",
                "between averages holders have different parameters, which cannot be sharded over them; "
                "use \"gradient\", or sdp.fsdp = false");
  rules.require(sdp.masking == "forward", "sdp", "sync",
                "sdp.masking = \"backward\" needs gradients averaged, since the whole forward uses what others update; "
                "use \"gradient\", or sdp.masking = \"forward\"");
  rules.require(deck.train.clip == "none", "train", "clip",
                "sdp.sync = \"parameter\" exchanges no gradients, and there is no gradient norm of the model; "
                "use \"none\", or sdp.sync = \"gradient\"");
  const std::string rule = "is not a multiple of sdp.period = " + str(sdp.period) +
                           ", and between averages holders have different parameters; change one of them";
  rules.require(deck.run.steps % sdp.period == 0, "run", "steps", rule);
  rules.require(deck.checkpoint.interval % sdp.period == 0, "checkpoint", "interval", rule + ", or use 0");
  rules.require(deck.output.evaluation_interval % sdp.period == 0, "output", "evaluation_interval", rule + ", or use 0");
  rules.require(deck.schedule.synchronous_updates % sdp.period == 0, "schedule", "synchronous_updates", rule);
}

void check_sdp(Rules& rules, const Deck& deck) {
  const Deck::Sdp& sdp = deck.sdp;
  check_parameter_averages(rules, deck);
  rules.require(sdp.refresh == 1 || sdp.masking == "backward", "sdp", "refresh",
                "sdp.masking = \"forward\" has nothing to refresh: what is not held is absent; "
                "use 1, or sdp.masking = \"backward\"");
  rules.require(!sdp.fsdp || sdp.masking == "forward", "sdp", "fsdp",
                "shards a unit over its holders, but sdp.masking = \"backward\" needs whole weights on every replica; "
                "use false, or sdp.masking = \"forward\"");
  if (sdp.unit == "neuron") {
    const Deck::Model& model = deck.model;
    const int hidden = mlp_width(model.family, model.width, model.hidden);
    rules.require(hidden % sdp.neuron_groups == 0, "sdp", "neuron_groups",
                  "does not divide the " + str(hidden) + " hidden neurons of an MLP; change it or model.hidden");
  }
}

// Muon orthogonalises whole matrices, and all holders have to do so with the same ones.
void check_muon(Rules& rules, const Deck& deck) {
  const std::string& mode = deck.parallel.mode;
  std::string setting = sharding(deck);
  if (mode == "zero1") setting = "parallel.mode = \"zero1\"";
  if (mode == "sdp" && deck.sdp.unit == "neuron") setting = "sdp.unit = \"neuron\"";
  rules.require(setting.empty() || deck.train.optimizer != "muon", "train", "optimizer",
                "needs whole matrices, equal on all replicas that hold them, and " + setting +
                    " has parts of them; use \"adamw\" or \"nadam\", or " +
                    (mode == "sdp" ? (deck.sdp.unit == "neuron" ? "sdp.unit = \"block\"" : "sdp.fsdp = false")
                                   : "parallel.mode = \"ddp\""));
}

}  // namespace

void check_replication(Rules& rules, const Deck& deck) {
  const std::string& mode = deck.parallel.mode;
  if (mode == "sdp") {
    check_sdp(rules, deck);
  } else {
    check_unused(rules, deck);
  }
  check_muon(rules, deck);
  rules.require(deck.parallel.fsdp_reduce == "microbatch" || !sharding(deck).empty(), "parallel", "fsdp_reduce",
                "is for gradients in shards (parallel.mode = \"fsdp\", or sdp.fsdp = true); leave it out");
  rules.require(mode == "ddp" || schedules::weight_rule(deck.schedule.name) == schedules::WeightRule::current, "parallel",
                "mode",
                "schedule.name = " + quoted(deck.schedule.name) +
                    " computes with other weights than the newest, which only \"ddp\" keeps; use \"ddp\", or another schedule");
  if (const std::string setting = sharding(deck); !setting.empty()) {
    rules.require(deck.schedule.name != "paci" || deck.schedule.order == "fixed", "schedule", "order",
                  "lets every replica react to its own arrivals, but with " + setting +
                      " all have to gather weights in one order; use \"fixed\"");
    rules.require(!deck.model.tied, "model", "tied",
                  "embedding and head use one matrix, which " + setting +
                      " would gather for two layers; set it to false, or use another parallel.mode");
  }
  if (deck.parallel.data > 1) {
    rules.require(!deck.emulate.enabled, "emulate", "enabled",
                  "emulated replicas would exchange nothing, and their times would say nothing; use parallel.data = 1");
    rules.require(deck.schedule.replay.empty(), "schedule", "replay",
                  "an action log tells the order of one replica; use parallel.data = 1, or \"\"");
  }
}

void check_replicas_and_stages(Rules& rules, const Deck& deck, int ranks, int stages) {
  const int data = deck.parallel.data;
  // Under "global" rules of its own say the same.
  rules.require(data == 1 || deck.train.clip != "stage" || static_cast<std::int64_t>(data) * stages <= ranks, "train", "clip",
                "with parallel.data = " + str(data) + " replicas needs one stage per rank, not " + plural(stages, "stage") +
                    " of each replica on " + plural(ranks / data, "rank") + "; use \"none\", or start " +
                    str(static_cast<std::int64_t>(data) * stages) + " ranks under a schedule with one stage per rank");
  // Their passes and evaluations wait for other replicas' parts of a layer; with several stages on a rank, two replicas could
  // wait for each other's other stage.
  const std::string& mode = deck.parallel.mode;
  rules.require(data == 1 || (mode != "fsdp" && mode != "sdp") || static_cast<std::int64_t>(data) * stages <= ranks, "parallel",
                "mode",
                "with parallel.data = " + str(data) + " replicas needs one stage per rank, not " + plural(stages, "stage") +
                    " of each replica on " + plural(ranks / data, "rank") + "; use \"ddp\" or \"zero1\", or start " +
                    str(static_cast<std::int64_t>(data) * stages) + " ranks under a schedule with one stage per rank");
  if (mode != "sdp") return;
  if (!deck.schedule.partition.empty()) {
    add_mask_errors(rules, deck, deck.schedule.partition);
  } else if (stages == 1) {
    add_mask_errors(rules, deck, {deck.model.layers});
  }
}

}  // namespace minipipe::core
