#pragma once

#include <string>

#include "core/profile/profile.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::core {

// The measured costs of a model of so many blocks as the tuner wants them: milliseconds by layer, the mean over the ranks.
// `split`: the two halves of the backward as a schedule that splits it takes them; else they share the time of the whole
// backward, which is less. A link costs the whole way of a message with the copy at its end. Memory is in units of one block.
schedules::CostProfile tuner_costs(const Profile& profile, int layers, bool split);

// Milliseconds of an optimizer step of a stage, with the layers shared evenly by the devices.
double tuner_update(const Profile& profile, int layers, int devices);

// Where a plan made from the profile may run, as the plan's header has it (plan_header.hpp); "" (anywhere) if it was measured
// on several hosts, as no host bears all their names.
std::string tuner_machine(const Profile& profile);

}  // namespace minipipe::core
