// Which elements of the model's tensors lie where on a replica: for checkpoints and for norms.
#include <algorithm>

#include "core/model/parameter_store.hpp"

namespace minipipe::core {

namespace {

// A run of a bucket's linear order inside one slab, padding left out.
struct Run {
  const Bucket* bucket = nullptr;
  const BucketSlab* slab = nullptr;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

// Those of [begin, end).
void add_runs(std::vector<Run>& runs, const Bucket& bucket, std::int64_t begin, std::int64_t end) {
  for (const BucketSlab& part : bucket.slabs) {
    const std::int64_t floats = static_cast<std::int64_t>(part.slab.rows) * part.slab.columns;
    const std::int64_t from = std::max(begin, part.begin), to = std::min(end, part.begin + floats);
    if (from < to) runs.push_back({&bucket, &part, from, to});
  }
}

enum class Choice {
  owned,  // by the first holder
  held,
  reached,  // all that lies here
  shard
};

std::vector<Run> runs_of(const ReplicaLayout& layout, Choice choice) {
  std::vector<Run> runs;
  for (const Bucket& bucket : layout.buckets) {
    const int number = bucket.number_of(layout.options.replica);
    if (choice == Choice::shard) {
      const LinearRange own = bucket.shard(layout.options.replica);
      add_runs(runs, bucket, own.begin, own.end);
    } else if (choice == Choice::owned ? number == 0 : choice == Choice::held ? number >= 0 : !bucket.parameters.empty()) {
      add_runs(runs, bucket, 0, bucket.floats);
    }
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.slab->entry < b.slab->entry; });
  return runs;
}

Piece in_shard(const Run& run, const ReplicaLayout& layout) {
  const LinearRange own = run.bucket->shard(layout.options.replica);
  return {run.bucket->shard_offset + run.from - own.begin, 1, run.to - run.from, 0};
}

// The rectangles of a run in its tensor: the end of a row, whole rows, the beginning of a row.
std::vector<StoredPart> rectangles(const Run& run, const ParameterEntry& entry, StoredField field) {
  const Slab& slab = run.slab->slab;
  StoredPart part;
  part.name = entry.name;
  part.field = field;
  part.full_shape = entry.full_shape;
  std::vector<StoredPart> parts;
  // As a cut of a matrix whose floats are numbered row by row.
  const Piece whole{0, slab.rows, slab.columns, slab.columns};
  for (const Piece& piece : cut({whole}, run.from - run.slab->begin, run.to - run.slab->begin)) {
    part.row = slab.full_row + static_cast<int>(piece.offset / slab.columns);
    part.column = slab.full_column + static_cast<int>(piece.offset % slab.columns);
    part.rows = static_cast<int>(piece.rows);
    part.columns = static_cast<int>(piece.columns);
    parts.push_back(part);
  }
  return parts;
}

// Where the floats of the parts of a run lie: one after the other in `places`.
void put(std::vector<StoredPart>& result, std::vector<StoredPart> parts, const Vector<float>& array, const Pieces& places) {
  std::int64_t begin = 0;
  for (StoredPart& part : parts) {
    const std::int64_t end = begin + static_cast<std::int64_t>(part.rows) * part.columns;
    part.array = array;
    part.piece = cut(places, begin, end).at(0);
    begin = end;
    result.push_back(std::move(part));
  }
}

std::vector<StoredPart> parts_of(const ParameterStore& store, bool owned) {
  const ReplicaLayout& layout = store.layout();
  const std::vector<ParameterEntry>& full = layout.full;
  std::vector<StoredPart> parts;
  const bool sharded = layout.options.sharded();
  const Choice values = sharded ? Choice::shard : owned ? Choice::owned : Choice::reached;
  for (const Run& run : runs_of(layout, values)) {
    const Pieces places = sharded ? Pieces{in_shard(run, layout)} : cut(run.bucket->parameters, run.from, run.to);
    put(parts, rectangles(run, full[run.slab->entry], StoredField::value), store.parameters(), places);
  }
  const bool in_shards = sharded || layout.zero1();
  for (const Run& run : runs_of(layout, in_shards ? Choice::shard : owned ? Choice::owned : Choice::held)) {
    const ParameterEntry& entry = full[run.slab->entry];
    Pieces places = in_shards ? Pieces{in_shard(run, layout)} : cut(run.bucket->gradients, run.from, run.to);
    put(parts, rectangles(run, entry, StoredField::first_moment), store.first_moment(), places);
    if (!in_shards) {
      const auto trained = std::find_if(store.trained().begin(), store.trained().end(),
                                        [&](const ParameterEntry& other) { return other.global_index == entry.global_index; });
      const std::int64_t second = store.optimizer().second_moments[trained - store.trained().begin()];
      if (second < 0) continue;
      for (Piece& piece : places) piece.offset += second - static_cast<std::int64_t>(trained->offset);
    }
    put(parts, rectangles(run, entry, StoredField::second_moment), store.second_moment(), places);
  }
  return parts;
}

}  // namespace

std::vector<StoredPart> ParameterStore::owned_parts() const { return parts_of(*this, true); }
std::vector<StoredPart> ParameterStore::all_parts() const { return parts_of(*this, false); }

std::vector<TensorPiece> owned_square_pieces(const ReplicaLayout& layout) {
  const bool in_shards = layout.options.sharded() || layout.zero1();
  std::vector<TensorPiece> parts;
  for (const Run& run : runs_of(layout, in_shards ? Choice::shard : Choice::owned)) {
    Pieces places = layout.sharded_gradients() ? Pieces{in_shard(run, layout)} : cut(run.bucket->gradients, run.from, run.to);
    for (Piece& piece : places) {
      if (!layout.sharded_gradients()) piece.offset += layout.gradient_layer_offsets[run.bucket->first_layer];
      parts.push_back({layout.full[run.slab->entry].global_index, piece});
    }
  }
  return parts;
}

std::vector<SquarePart> ParameterStore::owned_squares() const {
  std::vector<SquarePart> parts;
  for (const TensorPiece& part : owned_square_pieces(layout_)) parts.push_back({part.global_index, gradients_, part.piece});
  return parts;
}

}  // namespace minipipe::core
