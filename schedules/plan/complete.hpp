#pragma once

#include <string>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// Adds the updates that plans of other programs leave out: the U of a stage behind every `window` of its (weight) backwards. A
// plan that has updates is returned as it is.
Plan complete_plan(Plan plan, const ScheduleOptions& options);

// Throws InputError, beginning with `name` and naming row and cell, if the plan is not the order of one update under `options`
// (stages, window): a cell missing, doubled or unknown, a cycle, a stage on no rank or on two, an empty row, another number of
// stages. Rows (lines of the file) and cells are counted from 1, ranks from 0.
void validate_plan(const Plan& plan, const ScheduleOptions& options, const std::string& name);

}  // namespace minipipe::schedules
