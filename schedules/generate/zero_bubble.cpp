#include <algorithm>

#include "schedules/generate/generators.hpp"

namespace minipipe::schedules {

ActionList zero_bubble_row(int stage, std::int64_t m, std::int64_t warm, std::int64_t lag) {
  ActionList list;
  std::int64_t forwards = 0, weights = 0;
  const auto forward = [&] {
    if (forwards < m) list.push_back({Kind::forward, stage, forwards++});
  };
  for (std::int64_t k = 0; k < warm; ++k) forward();
  for (std::int64_t k = 0; k < m; ++k) {
    list.push_back({Kind::backward_input, stage, k});
    if (k + 1 - weights > lag) list.push_back({Kind::backward_weight, stage, weights++});
    forward();
  }
  while (weights < m) list.push_back({Kind::backward_weight, stage, weights++});
  list.push_back({Kind::update, stage, 0});
  return list;
}

Plan zb_h1_update(int stages, std::int64_t m) {
  Plan plan;
  for (int stage = 0; stage < stages; ++stage) plan.ranks.push_back(zero_bubble_row(stage, m, stages - stage, stage));
  return plan;
}

Plan zb_h2_update(int stages, std::int64_t m) {
  Plan plan;
  for (int stage = 0; stage < stages; ++stage)
    plan.ranks.push_back(zero_bubble_row(stage, m, 2 * (stages - stage) - 1, 2 * stage));
  return plan;
}

}  // namespace minipipe::schedules
