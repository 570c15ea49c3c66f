#pragma once

#include <string>

#include "core/profile/profile.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::core {

// The measured costs of a model as the tuner wants them: milliseconds by layer, each that of its kind, the mean over the ranks.
// The model must be one that check_model lets pass. `split`: the two halves of the backward as a schedule that splits it takes
// them; else they share the time of the whole backward, which is less. A link costs the whole way of a message with the copy at
// its end. Memory is in units of one layer of any kind, and in bytes.
schedules::CostProfile tuner_costs(const Profile& profile, const ModelConfig& model, bool split);

// Milliseconds of an optimizer step of a stage, with the layers shared evenly by the devices.
double tuner_update(const Profile& profile, const ModelConfig& model, int devices);

// Where a plan made from the profile may run, as the plan's header has it (plan_header.hpp); "" (anywhere) if it was measured
// on several hosts, as no host bears all their names.
std::string tuner_machine(const Profile& profile);

}  // namespace minipipe::core
