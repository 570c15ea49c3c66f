#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "schedules/check/gaps.hpp"
#include "schedules/plan/placement.hpp"

namespace minipipe::schedules {

struct RandomPlan {
  Placement placement;
  std::int64_t microbatches = 0;  // per update
  std::int64_t updates = 1;
  Plan plan;

  // What each stage needs for it.
  std::vector<std::int64_t> slots() const {
    std::vector<std::int64_t> result;
    for (int stage = 0; stage < placement.stages(); ++stage) {
      const ActionList& row = plan.ranks[static_cast<std::size_t>(placement.rank_of(stage))];
      result.push_back(measure(only_stage(row, stage)).peak_in_flight);
    }
    return result;
  }
};

// Looped, V-shaped, blocked or without any rule; 1 to 9 ranks, 1 to 4 stages on each.
inline Placement random_placement(std::mt19937_64& random) {
  const int ranks = 1 + static_cast<int>(random() % 9);
  const int chunks = 1 + static_cast<int>(random() % 4);
  switch (random() % 4) {
    case 0:
      return looped(ranks, chunks);
    case 1:
      return vee(ranks);
    case 2:
      return blocks(ranks * chunks, ranks);
    default: {
      Placement placement = looped(ranks, chunks);
      for (std::size_t k = placement.rank_of_stage.size(); k > 1; --k)
        std::swap(placement.rank_of_stage[k - 1], placement.rank_of_stage[random() % k]);
      return placement;
    }
  }
}

// A random legal order of flush steps: at each turn any action that could be done now, whole or split backwards mixed.
inline RandomPlan random_plan(std::mt19937_64& random) {
  RandomPlan result{
      random_placement(random), 1 + static_cast<std::int64_t>(random() % 4), 1 + static_cast<std::int64_t>(random() % 2), {}};
  struct Count {
    std::int64_t forwards = 0, inputs = 0, weights = 0, updates = 0;
  };
  const int stages = result.placement.stages();
  const std::int64_t m = result.microbatches, end = m * result.updates;
  std::vector<Count> counts(static_cast<std::size_t>(stages));
  result.plan.ranks.resize(static_cast<std::size_t>(result.placement.ranks));
  std::vector<int> open(static_cast<std::size_t>(stages));
  std::iota(open.begin(), open.end(), 0);
  while (!open.empty()) {
    const std::size_t pick = random() % open.size();
    const int stage = open[pick];
    const auto s = static_cast<std::size_t>(stage);
    Count& count = counts[s];
    ActionList& list = result.plan.ranks[static_cast<std::size_t>(result.placement.rank_of(stage))];
    if (count.weights == m * (count.updates + 1)) {
      list.push_back({Kind::update, stage, count.updates++});
      if (count.updates == result.updates) {
        open[pick] = open.back();
        open.pop_back();
      }
      continue;
    }
    const bool forward = count.forwards < m * (count.updates + 1) && count.forwards < end &&
                         (stage == 0 || counts[s - 1].forwards > count.forwards);
    const bool input = count.forwards > count.inputs && (stage + 1 == stages || counts[s + 1].inputs > count.inputs);
    const bool weight = count.inputs > count.weights;
    switch (random() % 3) {
      case 0:
        if (forward) list.push_back({Kind::forward, stage, count.forwards++});
        break;
      case 1:
        if (!input) break;
        if (!weight && random() % 2 == 0) {
          list.push_back({Kind::backward, stage, count.inputs++});
          ++count.weights;
        } else {
          list.push_back({Kind::backward_input, stage, count.inputs++});
        }
        break;
      default:
        if (weight) list.push_back({Kind::backward_weight, stage, count.weights++});
        break;
    }
  }
  return result;
}

}  // namespace minipipe::schedules
