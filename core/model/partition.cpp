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

// Best way to put the first `b` blocks on the first `s` stages, for all s and b: `value` combines the stages' costs.
struct Table {
  Table(int stages, int blocks) : columns(blocks + 1), value((stages + 1) * columns, infinity), last(value.size(), 0) {
    value[0] = 0;
  }
  std::size_t at(int s, int b) const { return static_cast<std::size_t>(s) * columns + b; }
  std::size_t columns;
  std::vector<double> value;
  std::vector<int> last;  // blocks on stage s-1 in the best way
};

// Of blocks [first, last). `before`: sums of the costs of the first k blocks.
double stage_cost(const LayerCosts& costs, const std::vector<double>& before, int stage, int stages, int first, int last) {
  return before[last] - before[first] + (stage == 0 ? costs.embedding : 0.0) + (stage == stages - 1 ? costs.head : 0.0);
}

template <class Combine>
Table solve(const LayerCosts& costs, int stages, int layers, Combine combine) {
  Table table(stages, layers);
  std::vector<double> before = {0};
  for (const double cost : costs.blocks) before.push_back(before.back() + cost);
  for (int s = 1; s <= stages; ++s) {
    for (int b = s; b <= layers - (stages - s); ++b) {
      for (int mine = 1; mine <= b - (s - 1); ++mine) {
        const double value =
            combine(table.value[table.at(s - 1, b - mine)], stage_cost(costs, before, s - 1, stages, b - mine, b));
        if (value < table.value[table.at(s, b)]) {
          table.value[table.at(s, b)] = value;
          table.last[table.at(s, b)] = mine;
        }
      }
    }
  }
  return table;
}

std::vector<int> balanced(const LayerCosts& costs, int stages, int layers) {
  const Table slowest = solve(costs, stages, layers, [](double before, double cost) { return std::max(before, cost); });
  const double limit = slowest.value[slowest.at(stages, layers)] * (1 + 1e-12);
  const Table even = solve(costs, stages, layers,
                           [limit](double before, double cost) { return cost > limit ? infinity : before + cost * cost; });
  std::vector<int> blocks(stages);
  int left = layers;
  for (int s = stages; s > 0; --s) {
    blocks[s - 1] = even.last[even.at(s, left)];
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
