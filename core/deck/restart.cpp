#include "core/deck/restart.hpp"

#include "core/deck/rule_list.hpp"
#include "core/deck/schema.hpp"
#include "core/deck/text.hpp"
#include "schedules/error.hpp"
#include "schedules/policy/options.hpp"
#include "schedules/policy/versions.hpp"

namespace minipipe::core {
namespace {

// Whether a backward that computes again uses newer weights than the forward did.
bool computes_with_newer_weights(const std::string& schedule) {
  const schedules::WeightRule rule = schedules::weight_rule(schedule);
  return schedules::is_asynchronous(schedule) &&
         (rule == schedules::WeightRule::current || rule == schedules::WeightRule::corrected);
}

// What a change that is allowed means for the run; empty if nothing needs to be said.
std::string remark(const std::string& name, const Deck& present) {
  if (name == "run.steps") return " (the learning-rate schedule depends on it: it differs from the stored run's from here on)";
  if (name == "train.recompute" && computes_with_newer_weights(present.schedule.name)) {
    return " (under schedule.name = " + to_toml(Value(present.schedule.name)) +
           " it uses newer weights than the forward did: losses differ from the stored run's from here on)";
  }
  if (name == "data.train" || name == "data.validation") return " (the file has to hold the same tokens)";
  return "";
}

// Keys that every resumed run changes, or that leave results as they are: not worth a line.
bool says_nothing(const std::string& name) {
  return name == "run.resume" || name == "output.directory" || name == "output.progress" || name == "run.time_limit";
}

std::int64_t microbatches_of_update(const Deck& deck) { return deck.train.microbatches * deck.parallel.data; }

bool decides_what_an_update_covers(const std::string& name) { return name == "train.microbatches" || name == "parallel.data"; }

// Microbatches are numbered through, update by update: with more or fewer of them in an update, a run that goes on would repeat
// or skip data, and its learning rate would be of another number of tokens.
std::string other_cover(const Deck& stored, const Deck& present) {
  const std::int64_t before = microbatches_of_update(stored);
  const std::int64_t now = microbatches_of_update(present);
  std::string text = " (an update would have " + plural(now, "microbatch") + ", train.microbatches x parallel.data, not " +
                     std::to_string(before) + " as before, and data would be repeated or skipped: ";
  if (before % present.parallel.data == 0) {
    return text + "set train.microbatches = " + std::to_string(before / present.parallel.data) + ")";
  }
  return text + "choose a parallel.data that divides " + std::to_string(before) + ", and train.microbatches to suit it)";
}

// Dropout and the balance loss act in training only. Microbatches are numbered through, so that their number in an update
// does not say where training goes on.
bool decides_what_is_evaluated(const Entry& entry, CheckpointUse use) {
  if (entry.block == "model") return entry.key != "dropout" && entry.key != "balance_loss";
  if (use != CheckpointUse::evaluate_next_batch) return false;
  return entry.name() == "run.seed" || entry.name() == "train.sequence" || entry.name() == "train.microbatch_size";
}

std::string change_of(const Entry& entry, const Deck& stored, const Deck& present) {
  return entry.name() + ": " + shortened(to_toml(entry.get(stored))) + " -> " + shortened(to_toml(entry.get(present)));
}

void check_evaluation(const Deck& stored, const Deck& present, CheckpointUse use) {
  std::string errors;
  for (const Entry& entry : schema()) {
    if (entry.get(stored) == entry.get(present) || !decides_what_is_evaluated(entry, use)) continue;
    errors += "\n  " + change_of(entry, stored, present);
  }
  if (errors.empty()) return;
  throw InputError(std::string("the deck differs from the one stored in the checkpoint in keys that make the model") +
                   (use == CheckpointUse::evaluate ? "" : " or the next batch") + " (stored -> now):" + errors +
                   "\nEvaluate with the stored values (the deck of the run, or block.key=value on the command line), or name "
                   "another --checkpoint.");
}

}  // namespace

std::vector<std::string> check_restart(const Deck& stored, const Deck& present, CheckpointUse use) {
  if (use != CheckpointUse::resume) {
    check_evaluation(stored, present, use);
    return {};
  }
  std::vector<std::string> changes;
  std::string errors;
  bool cover_told = microbatches_of_update(stored) == microbatches_of_update(present);
  for (const Entry& entry : schema()) {
    if (entry.get(stored) == entry.get(present)) continue;
    const std::string change = change_of(entry, stored, present);
    if (decides_what_an_update_covers(entry.name()) && !cover_told) {
      errors += "\n  " + change + other_cover(stored, present);
      cover_told = true;
    } else if (!entry.may_change_at_restart) {
      errors += "\n  " + change;
    } else if (entry.name() == "run.steps" && present.run.steps < stored.run.steps) {
      errors += "\n  " + change + " (may only grow; to stop early use run.time_limit)";
    } else if (!says_nothing(entry.name())) {
      changes.push_back(change + remark(entry.name(), present));
    }
  }
  if (!errors.empty()) {
    throw InputError(
        "the deck differs from the one stored in the checkpoint in keys that may not change at a restart "
        "(stored -> now):" +
        errors + "\nSet them back, or start anew with run.resume=\"\" and another output.directory.");
  }
  return changes;
}

}  // namespace minipipe::core
