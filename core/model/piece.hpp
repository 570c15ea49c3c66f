#pragma once

#include <cstdint>
#include <vector>

namespace minipipe::core {

// A rectangle of floats inside a flat array: `rows` runs of `columns` floats whose starts are `stride` floats apart. Its linear
// order is row by row.
struct Piece {
  std::int64_t offset = 0;
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // of no meaning for one row

  std::int64_t floats() const { return rows * columns; }
  bool contiguous() const { return rows == 1 || stride == columns; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Several, one after the other in linear order.
using Pieces = std::vector<Piece>;

inline std::int64_t floats_of(const Pieces& pieces) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.floats();
  return sum;
}

// run(offset in the array, floats) for each contiguous run of a piece, in linear order.
template <class Run>
void for_runs(const Piece& piece, const Run& run) {
  if (piece.contiguous()) {
    run(piece.offset, piece.floats());
    return;
  }
  for (std::int64_t row = 0; row < piece.rows; ++row) run(piece.offset + row * piece.stride, piece.columns);
}

// Joins neighbours that are one contiguous run.
Pieces merged(const Pieces& pieces);

// The part [begin, end) of the linear order.
Pieces cut(const Pieces& pieces, std::int64_t begin, std::int64_t end);

}  // namespace minipipe::core
