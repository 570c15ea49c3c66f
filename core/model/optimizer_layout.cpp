#include "core/model/optimizer_layout.hpp"

#include "core/model/padding.hpp"

namespace minipipe::core {

OptimizerLayout::OptimizerLayout(const std::vector<ParameterEntry>& entries, OptimizerKind optimizer) {
  Layout second;
  for (const ParameterEntry& entry : entries) {
    const auto offset = static_cast<std::int64_t>(entry.offset);
    if (optimizer == OptimizerKind::muon && entry.hidden_maps > 0) {
      const std::int64_t rows = entry.shape.at(0) / entry.hidden_maps, columns = entry.shape.at(1);
      for (int map = 0; map < entry.hidden_maps; ++map) {
        matrices.push_back({offset + map * rows * columns, rows, columns, entry.decay});
      }
      second_moments.push_back(-1);
      continue;
    }
    // The padding behind an entry is part of its range: it stays 0, and neighbours join into long ranges.
    const auto moment = static_cast<std::int64_t>(second.take(entry.size));
    ranges.push_back({offset, static_cast<std::int64_t>(padded(entry.size)), entry.decay, moment});
    second_moments.push_back(moment);
  }
  second_moment_floats = second.end();
}

}  // namespace minipipe::core
