#include "core/model/piece.hpp"

#include <algorithm>

namespace minipipe::core {

Pieces merged(const Pieces& pieces) {
  Pieces result;
  for (Piece piece : pieces) {
    if (piece.floats() == 0) continue;
    if (piece.contiguous()) piece = {piece.offset, 1, piece.floats(), 0};
    const bool joins = !result.empty() && result.back().rows == 1 && piece.rows == 1 &&
                       result.back().offset + result.back().columns == piece.offset;
    if (joins) {
      result.back().columns += piece.columns;
    } else {
      result.push_back(piece);
    }
  }
  return result;
}

Pieces cut(const Pieces& pieces, std::int64_t begin, std::int64_t end) {
  Pieces result;
  const auto add = [&](std::int64_t offset, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    if (rows > 0 && columns > 0) result.push_back({offset, rows, columns, rows > 1 ? stride : 0});
  };
  std::int64_t start = 0;  // of the piece in linear order
  for (const Piece& piece : pieces) {
    const std::int64_t from = std::max<std::int64_t>(begin - start, 0), to = std::min(end - start, piece.floats());
    start += piece.floats();
    if (from >= to) continue;
    const std::int64_t width = piece.columns, row = from / width, last = to / width;
    const std::int64_t column = from % width, rest = to % width;
    if (row == last) {
      add(piece.offset + row * piece.stride + column, 1, to - from, 0);
      continue;
    }
    // The end of a row, whole rows, the beginning of a row.
    const std::int64_t whole = column > 0 ? row + 1 : row;
    if (column > 0) add(piece.offset + row * piece.stride + column, 1, width - column, 0);
    add(piece.offset + whole * piece.stride, last - whole, width, piece.stride);
    add(piece.offset + last * piece.stride, 1, rest, 0);
  }
  return result;
}

}  // namespace minipipe::core
