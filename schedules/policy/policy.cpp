#include "schedules/policy/policy.hpp"

#include "schedules/error.hpp"
#include "schedules/plan/placement.hpp"
#include "schedules/policy/rank_list.hpp"
#include "schedules/policy/windowed.hpp"

namespace minipipe::schedules {

std::unique_ptr<Policy> make_policy(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (options.name == "gpipe") return make_gpipe(options, stage);
  if (options.name == "1f1b") return make_one_forward_one_backward(options, stage);
  if (is_asynchronous(options.name)) return make_asynchronous(options, stage);
  const Placement placement = placement_for(options);
  const int rank = placement.rank_of_stage[static_cast<std::size_t>(stage)];
  auto policies = make_rank_policies(options, placement, rank);
  if (policies.size() == 1) return std::move(policies.at(stage));
  throw InputError("schedule: " + options.name + " gives rank " + std::to_string(rank) + " " + std::to_string(policies.size()) +
                   " stages with one common order; make the policies of the rank together");
}

}  // namespace minipipe::schedules
