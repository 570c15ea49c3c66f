#include "core/model/partition.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "core/model/flops.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The costs of stages that hold blocks [first, last).
class StageCosts {
 public:
  StageCosts(const LayerCosts& costs, int stages) : costs_(costs), stages_(stages) {
    before_.push_back(0);
    for (const double cost : costs.blocks) before_.push_back(before_.back() + cost);
  }
  // Not lower with more blocks.
  double operator()(int stage, int first, int last) const {
    return before_[last] - before_[first] + (stage == 0 ? costs_.embedding : 0.0) + (stage == stages_ - 1 ? costs_.head : 0.0);
  }

 private:
  const LayerCosts& costs_;
  int stages_;
  std::vector<double> before_;  // sums of the first k blocks
};

// The cost of the slowest stage under the best partition. The first b blocks on the first s stages cost more with each block,
// so that the best size of stage s is where its own cost comes to that of the stages before.
double lowest_maximum(const StageCosts& cost, int stages, int layers) {
  std::vector<double> before(static_cast<std::size_t>(layers) + 1, infinity), best;
  before[0] = 0;
  for (int s = 1; s <= stages; ++s, before.swap(best)) {
    best.assign(before.size(), infinity);
    for (int b = s; b <= layers - (stages - s); ++b) {
      int low = 1, high = b - (s - 1);  // blocks of stage s - 1
      while (low < high) {
        const int middle = low + (high - low) / 2;
        if (cost(s - 1, b - middle, b) >= before[b - middle]) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      for (const int mine : {low - 1, low}) {
        if (mine >= 1) best[b] = std::min(best[b], std::max(before[b - mine], cost(s - 1, b - mine, b)));
      }
    }
  }
  return before[layers];
}

// Where stages may end, so that neither those before nor those behind are above a limit.
struct Ends {
  Ends(const StageCosts& cost, int stages, int layers, double limit) : low(stages + 1, 0), high(stages + 1, 0) {
    for (int s = 1; s <= stages; ++s) {
      const int most = layers - (stages - s);
      high[s] = std::min(high[s - 1] + 1, most);
      while (high[s] < most && cost(s - 1, high[s - 1], high[s] + 1) <= limit) ++high[s];
    }
    low[stages] = layers;
    for (int s = stages - 1; s > 0; --s) {
      low[s] = std::max(low[s + 1] - 1, s);
      while (low[s] > s && cost(s, low[s] - 1, low[s + 1]) <= limit) --low[s];
    }
  }
  std::vector<int> low, high;  // of the first s stages
};

// Least sum of squares among the partitions whose slowest stage is as fast as can be.
std::vector<int> balanced(const LayerCosts& costs, int stages, int layers) {
  const StageCosts cost(costs, stages);
  const double limit = lowest_maximum(cost, stages, layers) * (1 + 1e-12);
  const Ends ends(cost, stages, layers, limit);
  std::vector<std::vector<int>> last(stages + 1);  // blocks on stage s - 1 in the best way, by end from low[s] on
  std::vector<double> before = {0}, best;          // sums, by end from low[s - 1] and low[s] on
  for (int s = 1; s <= stages; ++s, before.swap(best)) {
    const int low = ends.low[s], count = std::max(0, ends.high[s] - low + 1);
    best.assign(count, infinity);
    last[s].assign(count, 0);
    for (int b = low; b < low + count; ++b) {
      const int most = b - std::max(s - 1, ends.low[s - 1]);
      for (int mine = std::max(1, b - ends.high[s - 1]); mine <= most; ++mine) {
        const double own = cost(s - 1, b - mine, b);
        if (own > limit) break;
        const double value = before[b - mine - ends.low[s - 1]] + own * own;
        if (value < best[b - low]) {
          best[b - low] = value;
          last[s][b - low] = mine;
        }
      }
    }
  }
  std::vector<int> blocks(stages);
  int left = layers;
  for (int s = stages; s > 0; --s) {
    blocks[s - 1] = last[s][left - ends.low[s]];
    left -= blocks[s - 1];
  }
  return blocks;
}

std::string list_text(const std::vector<int>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

void check_explicit(const std::vector<int>& blocks, int stages, int layers) {
  const std::string key = "schedule.partition = " + list_text(blocks) + ": ";
  if (static_cast<int>(blocks.size()) != stages) {
    throw InputError(key + "has " + std::to_string(blocks.size()) + " entries for " + std::to_string(stages) +
                     " stages; give one per stage, or [] for a balanced split");
  }
  for (int s = 0; s < stages; ++s) {
    if (blocks[s] < 0) throw InputError(key + "entries must not be negative");
    if (blocks[s] == 0 && s != 0 && s != stages - 1) {
      throw InputError(key + "stage " + std::to_string(s) +
                       " would be empty; 0 is allowed only on the first stage (embedding alone) and the last (head alone)");
    }
  }
  const auto sum = std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
  if (sum != layers) {
    throw InputError(key + "sums to " + std::to_string(sum) + "; must sum to model.layers = " + std::to_string(layers));
  }
}

}  // namespace

LayerCosts layer_costs(const ModelConfig& model, int sequence) {
  const double width = model.width;
  std::vector<double> blocks;
  for (int b = 0; b < model.layers; ++b) blocks.push_back(block_flops_per_token(model, sequence, layer_kind(model, b)));
  const double unit = blocks.at(0);
  for (double& block : blocks) block /= unit;
  return {8 * width / unit, std::move(blocks), 2 * width * model.vocab / unit};
}

std::vector<StageLayers> partition_model(const ModelConfig& model, int sequence, int stages,
                                         const std::vector<int>& blocks_per_stage) {
  if (stages < 1) throw InputError("a model needs at least one stage, not " + std::to_string(stages));
  std::vector<int> blocks = blocks_per_stage;
  if (blocks.empty()) {
    if (stages > model.layers) {
      throw InputError("model.layers = " + std::to_string(model.layers) + ": fewer than the " + std::to_string(stages) +
                       " stages; use fewer ranks, more layers, or a schedule.partition with 0 on the first or last stage");
    }
    blocks = balanced(layer_costs(model, sequence), stages, model.layers);
  } else {
    check_explicit(blocks, stages, model.layers);
  }
  std::vector<StageLayers> result(stages);
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    result[s] = {s == 0, first, blocks[s], s == stages - 1};
    first += blocks[s];
  }
  return result;
}

}  // namespace minipipe::core
