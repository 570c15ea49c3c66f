#include "core/profile/layer_times.hpp"

#include <cmath>
#include <numeric>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// Unknowns in the order of LayerTimes: embedding, the kinds of layers, head, received.
constexpr int unknowns = layer_kinds + 3;
constexpr int head_at = layer_kinds + 1;
using Row = std::array<double, unknowns>;
using Used = std::array<bool, unknowns>;

Row equation(const LayerCounts& layers, Receives receives) {
  const bool receiving =
      (receives == Receives::activation && !layers.embedding) || (receives == Receives::gradient && !layers.head);
  Row row{};
  row[0] = layers.embedding ? 1.0 : 0.0;
  for (int k = 0; k < layer_kinds; ++k) row[1 + k] = layers.layers[k];
  row[head_at] = layers.head ? 1.0 : 0.0;
  row[head_at + 1] = receiving ? 1.0 : 0.0;
  return row;
}

Row flat(const LayerTimes& times) {
  Row row{};
  row[0] = times.embedding;
  for (int k = 0; k < layer_kinds; ++k) row[1 + k] = times.layers[k];
  row[head_at] = times.head;
  row[head_at + 1] = times.received;
  return row;
}

LayerTimes named(const Row& row) {
  LayerTimes times;
  times.embedding = row[0];
  for (int k = 0; k < layer_kinds; ++k) times.layers[k] = row[1 + k];
  times.head = row[head_at];
  times.received = row[head_at + 1];
  return times;
}

std::string name_of_unknown(int column) {
  if (column == 0) return "embedding";
  if (column == head_at) return "head";
  return column < head_at ? name_of(static_cast<LayerKind>(column - 1)) : "message in";
}

// The columns of the system, orthogonalised in their order (modified Gram-Schmidt). A column that depends on those before it,
// or is not used, is left out.
struct Orthogonal {
  Orthogonal(const std::vector<Row>& rows, const Used& used) {
    constexpr double negligible = 1e-9;
    for (int c = 0; c < unknowns; ++c) {
      std::vector<double>& column = columns[c];
      double before = 0;
      for (const Row& row : rows) column.push_back(row[c]), before += row[c] * row[c];
      if (!used[c] || before == 0) continue;
      for (int d = 0; d < c; ++d) {
        if (!kept[d]) continue;
        const double dot = std::inner_product(column.begin(), column.end(), columns[d].begin(), 0.0);
        triangle[d][c] = dot;
        for (std::size_t i = 0; i < column.size(); ++i) column[i] -= dot * columns[d][i];
      }
      const double norm = std::inner_product(column.begin(), column.end(), column.begin(), 0.0);
      dependent[c] = norm <= negligible * before;
      if (dependent[c]) continue;
      kept[c] = true;
      triangle[c][c] = std::sqrt(norm);
      for (double& value : column) value /= triangle[c][c];
    }
  }

  // The combination of kept columns with these projections.
  Row solve(const Row& projected) const {
    Row solution{};
    for (int c = unknowns - 1; c >= 0; --c) {
      if (!kept[c]) continue;
      double value = projected[c];
      for (int d = c + 1; d < unknowns; ++d) value -= triangle[c][d] * solution[d];
      solution[c] = value / triangle[c][c];
    }
    return solution;
  }

  Row least_squares(std::vector<double> right) const {
    Row projected{};
    for (int c = 0; c < unknowns; ++c) {
      if (!kept[c]) continue;
      projected[c] = std::inner_product(right.begin(), right.end(), columns[c].begin(), 0.0);
      for (std::size_t i = 0; i < right.size(); ++i) right[i] -= projected[c] * columns[c][i];
    }
    return solve(projected);
  }

  std::array<std::vector<double>, unknowns> columns;
  std::array<Row, unknowns> triangle{};
  Used kept{}, dependent{};
};

// A dependent column is a sum of multiples of kept ones: time moved from these to it changes no stage.
std::vector<std::string> undetermined_groups(const Orthogonal& system) {
  constexpr double none = 1e-6;
  std::vector<std::string> groups;
  for (int c = 0; c < unknowns; ++c) {
    if (!system.dependent[c]) continue;
    Row projected{};
    for (int d = 0; d < c; ++d) projected[d] = system.triangle[d][c];
    const Row shares = system.solve(projected);
    std::string group;
    for (int d = 0; d < c; ++d) {
      if (std::abs(shares[d]) > none) group += name_of_unknown(d) + " + ";
    }
    groups.push_back(group + name_of_unknown(c));
  }
  return groups;
}

}  // namespace

int LayerCounts::all() const { return std::accumulate(layers.begin(), layers.end(), 0); }

LayerCounts count_layers(const ModelConfig& model, const StageLayers& layers) {
  LayerCounts counts{layers.embedding, {}, layers.head};
  for (int b = layers.first_block; b < layers.first_block + layers.blocks; ++b) ++counts.of(layer_kind(model, b));
  return counts;
}

LayerCounts count_layers(const ModelConfig& model) { return count_layers(model, {true, 0, model.layers, true}); }

double stage_seconds(const LayerTimes& times, const LayerCounts& layers, Receives receives) {
  const Row count = equation(layers, receives);
  const Row seconds = flat(times);
  return std::inner_product(count.begin(), count.end(), seconds.begin(), 0.0);
}

LayerSolution solve_layers(const std::vector<StageTiming>& stages, Receives receives) {
  if (stages.empty()) throw RunError("no stage was timed");
  std::vector<Row> rows;
  std::vector<double> right;
  for (const StageTiming& stage : stages) {
    if (!(stage.seconds > 0) || !std::isfinite(stage.seconds)) {
      throw RunError("a stage of " + std::to_string(stage.layers.all()) + " blocks was timed at " +
                     std::to_string(stage.seconds) + " s; the clock is too coarse for so small a model");
    }
    Row row = equation(stage.layers, receives);
    for (double& value : row) value *= stage.weight / stage.seconds;
    rows.push_back(row);
    right.push_back(stage.weight);
  }
  Used used;
  used.fill(true);
  LayerSolution result;
  result.undetermined = undetermined_groups(Orthogonal(rows, used));
  // Noise can make a small layer negative; without it the others are solved again.
  for (;;) {
    const Row solution = Orthogonal(rows, used).least_squares(right);
    int lowest = 0;
    for (int c = 1; c < unknowns; ++c) {
      if (solution[c] < solution[lowest]) lowest = c;
    }
    if (!(solution[lowest] < 0)) {
      result.times = named(solution);
      return result;
    }
    used[lowest] = false;
  }
}

}  // namespace minipipe::core
