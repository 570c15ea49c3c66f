#include "core/model/optimizer_layout.hpp"

#include <algorithm>

#include "core/model/padding.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// The contiguous runs of pieces, as pieces of one row.
Pieces runs_of(const Pieces& pieces) {
  Pieces runs;
  for (const Piece& piece : pieces) {
    for_runs(piece, [&](std::int64_t offset, std::int64_t floats) { runs.push_back({offset, 1, floats, 0}); });
  }
  return runs;
}

// One range per run that is contiguous in both lists, which are of one size; moments lie behind each other from `moments` on.
void add_ranges(std::vector<ParameterRange>& ranges, const Pieces& parameters, const Pieces& gradients, std::int64_t moments,
                bool decay) {
  const Pieces p = runs_of(parameters), g = runs_of(gradients);
  std::size_t i = 0, j = 0;
  std::int64_t in_p = 0, in_g = 0;
  while (i < p.size() && j < g.size()) {
    const std::int64_t count = std::min(p[i].columns - in_p, g[j].columns - in_g);
    ranges.push_back({p[i].offset + in_p, count, decay, moments, moments, g[j].offset + in_g});
    moments += count;
    in_p += count;
    in_g += count;
    if (in_p == p[i].columns) {
      ++i;
      in_p = 0;
    }
    if (in_g == g[j].columns) {
      ++j;
      in_g = 0;
    }
  }
}

// The rows of the slabs of a tensor that is narrower where it is trained.
void add_slabs(std::vector<ParameterRange>& ranges, const ParameterEntry& forward, const ParameterEntry& trained,
               std::int64_t moments) {
  const std::int64_t width = matrix_shape(forward.shape).columns, trained_width = matrix_shape(trained.shape).columns;
  for (const Slab& to : trained.slabs) {
    const auto from = std::find_if(forward.slabs.begin(), forward.slabs.end(), [&](const Slab& slab) {
      return slab.full_row == to.full_row && slab.full_column == to.full_column;
    });
    for (int row = 0; row < to.rows; ++row) {
      const std::int64_t place = (to.row + row) * trained_width + to.column;
      const std::int64_t parameter = static_cast<std::int64_t>(forward.offset) + (from->row + row) * width + from->column;
      ranges.push_back({parameter, to.columns, forward.decay, moments + place,
                        static_cast<std::int64_t>(trained.offset) + place, static_cast<std::int64_t>(trained.offset) + place});
    }
  }
}

}  // namespace

OptimizerLayout::OptimizerLayout(const std::vector<ParameterEntry>& entries, OptimizerKind optimizer) {
  add_tensors(entries, entries, optimizer, OptimizerRanges::all);
}

OptimizerLayout::OptimizerLayout(const ReplicaLayout& layout, OptimizerKind optimizer, OptimizerRanges wanted) {
  if (!layout.options.sharded() && !layout.zero1()) {
    add_tensors(layout.forward, layout.trained, optimizer, wanted);
    return;
  }
  if (optimizer == OptimizerKind::muon) {
    throw InputError(
        "train.optimizer = \"muon\": needs whole matrices, but these replicas have shards of them; use \"adamw\" or \"nadam\", "
        "or parallel.mode = \"ddp\" or \"sdp\" without shards");
  }
  second_moment_floats = static_cast<std::size_t>(layout.moment_floats);
  if (wanted == OptimizerRanges::all) add_shards(layout);
}

void OptimizerLayout::add_tensors(const std::vector<ParameterEntry>& forward, const std::vector<ParameterEntry>& trained,
                                  OptimizerKind optimizer, OptimizerRanges wanted) {
  Layout second;
  auto used = forward.begin();
  for (const ParameterEntry& entry : trained) {
    while (used->global_index != entry.global_index) ++used;
    const auto offset = static_cast<std::int64_t>(used->offset), place = static_cast<std::int64_t>(entry.offset);
    const bool apart = place != offset;
    if (optimizer == OptimizerKind::muon && entry.hidden_maps > 0) {
      if (entry.shape != entry.full_shape) {
        throw InputError("train.optimizer = \"muon\": needs whole matrices, but replicas hold some neurons of " + entry.name +
                         "; use \"adamw\" or \"nadam\", or sdp.unit = \"block\" or \"sublayer\"");
      }
      const std::int64_t rows = entry.shape.at(0) / entry.hidden_maps, columns = entry.shape.at(1);
      for (int map = 0; map < entry.hidden_maps; ++map) {
        const std::int64_t start = map * rows * columns;
        matrices.push_back({offset + start, rows, columns, entry.decay, apart ? place + start : -1});
      }
      second_moments.push_back(-1);
      continue;
    }
    const auto moment = static_cast<std::int64_t>(second.take(entry.size));
    second_moments.push_back(moment);
    if (wanted == OptimizerRanges::none) continue;
    if (entry.shape != used->shape) {
      add_slabs(ranges, *used, entry, moment);
      continue;
    }
    // The padding behind an entry is part of its range: it stays 0, and neighbours join into long ranges.
    ranges.push_back({offset, static_cast<std::int64_t>(padded(entry.size)), entry.decay, moment, place, place});
  }
  second_moment_floats = second.end();
}

void OptimizerLayout::add_shards(const ReplicaLayout& layout) {
  for (const Bucket& bucket : layout.buckets) {
    const LinearRange own = bucket.shard(layout.options.replica);
    for (const BucketSlab& part : bucket.slabs) {
      const std::int64_t from = std::max(own.begin, part.begin), to = std::min(own.end, part.end);
      if (from >= to) continue;
      const std::int64_t place = bucket.shard_offset + from - own.begin;
      const Pieces shard = {{place, 1, to - from, 0}};
      Pieces gradients = layout.sharded_gradients() ? shard : cut(bucket.gradients, from, to);
      if (!layout.sharded_gradients()) {
        for (Piece& piece : gradients) piece.offset += layout.gradient_layer_offsets[bucket.first_layer];
      }
      add_ranges(ranges, layout.options.sharded() ? shard : cut(bucket.parameters, from, to), gradients, place,
                 layout.full[part.entry].decay);
    }
  }
}

}  // namespace minipipe::core
