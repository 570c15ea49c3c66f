#include "core/profile/layer_times.hpp"

#include <array>
#include <cmath>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr int kinds = 4;
using Row = std::array<double, kinds>;
using Used = std::array<bool, kinds>;

Row counts(const StageLayers& layers, Receives receives) {
  const bool receiving =
      (receives == Receives::activation && !layers.embedding) || (receives == Receives::gradient && !layers.head);
  return {layers.embedding ? 1.0 : 0.0, static_cast<double>(layers.blocks), layers.head ? 1.0 : 0.0, receiving ? 1.0 : 0.0};
}

// Orthogonalises the columns in their order (modified Gram-Schmidt) and solves; a column that depends on those before it, or
// is not used, gets 0.
Row least_squares(const std::vector<Row>& rows, const std::vector<double>& right, const Used& used) {
  constexpr double dependent = 1e-9;
  const std::size_t n = rows.size();
  std::array<std::vector<double>, kinds> columns;
  std::array<Row, kinds> triangle{};
  Row projected{};
  Used kept = used;
  std::vector<double> rest = right;
  for (int c = 0; c < kinds; ++c) {
    if (!used[c]) continue;
    std::vector<double>& column = columns[c];
    double before = 0;
    for (const Row& row : rows) column.push_back(row[c]), before += row[c] * row[c];
    for (int d = 0; d < c; ++d) {
      if (!kept[d]) continue;
      double dot = 0;
      for (std::size_t i = 0; i < n; ++i) dot += columns[d][i] * column[i];
      triangle[d][c] = dot;
      for (std::size_t i = 0; i < n; ++i) column[i] -= dot * columns[d][i];
    }
    double norm = 0;
    for (const double value : column) norm += value * value;
    if (norm <= dependent * before) {
      kept[c] = false;
      continue;
    }
    norm = std::sqrt(norm);
    triangle[c][c] = norm;
    for (double& value : column) value /= norm;
    for (std::size_t i = 0; i < n; ++i) projected[c] += column[i] * rest[i];
    for (std::size_t i = 0; i < n; ++i) rest[i] -= projected[c] * column[i];
  }
  Row solution{};
  for (int c = kinds - 1; c >= 0; --c) {
    if (!kept[c]) continue;
    double value = projected[c];
    for (int d = c + 1; d < kinds; ++d) value -= triangle[c][d] * solution[d];
    solution[c] = value / triangle[c][c];
  }
  return solution;
}

}  // namespace

double stage_seconds(const LayerTimes& times, const StageLayers& layers, Receives receives) {
  const Row count = counts(layers, receives);
  return count[0] * times.embedding + count[1] * times.block + count[2] * times.head + count[3] * times.received;
}

LayerTimes solve_layers(const std::vector<StageTiming>& stages, Receives receives) {
  if (stages.empty()) throw RunError("no stage was timed");
  std::vector<Row> rows;
  std::vector<double> right;
  for (const StageTiming& stage : stages) {
    if (!(stage.seconds > 0) || !std::isfinite(stage.seconds)) {
      throw RunError("a stage of " + std::to_string(stage.layers.blocks) + " blocks was timed at " +
                     std::to_string(stage.seconds) + " s; the clock is too coarse for so small a model");
    }
    Row row = counts(stage.layers, receives);
    for (double& value : row) value *= stage.weight / stage.seconds;
    rows.push_back(row);
    right.push_back(stage.weight);
  }
  Used used{true, true, true, true};
  // Noise can make a small layer negative; without it the others are solved again.
  for (;;) {
    const Row solution = least_squares(rows, right, used);
    int lowest = 0;
    for (int c = 1; c < kinds; ++c) {
      if (solution[c] < solution[lowest]) lowest = c;
    }
    if (!(solution[lowest] < 0)) return {solution[0], solution[1], solution[2], solution[3]};
    used[lowest] = false;
  }
}

}  // namespace minipipe::core
