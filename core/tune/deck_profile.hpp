#pragma once

#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::core {

// Costs of the deck's layers when no profile is given, from [emulate]: a stage of `stages` takes its time times its factor,
// shared by its layers as `relative_costs` say (empty: evenly), a backward half input and half weight gradient, and a link the
// largest latency. InputError, with what to give instead, if the deck does not emulate.
schedules::CostProfile deck_profile(const Deck& deck, int stages, const std::vector<double>& relative_costs = {});

// The values of deck keys under which `minipipe train DECK` runs the plan: "block.key=value".
std::vector<std::string> plan_overrides(const Deck& deck, const schedules::CostProfile& profile,
                                        const std::vector<int>& partition, const std::string& plan_file);

// The same without a deck: schedule, plan and partition.
std::vector<std::string> plan_overrides(const std::vector<int>& partition, const std::string& plan_file);

}  // namespace minipipe::core
