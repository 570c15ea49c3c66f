#pragma once

#include "core/kernels/loops.hpp"

// One launch over many pieces of arrays of different sizes: the pieces' descriptions travel with the kernel's arguments, so
// nothing is allocated or copied.
namespace minipipe::core {

inline constexpr std::int64_t piece_block = 4096;  // elements
// Keeps a table of 64-byte pieces below the 4 KB that arguments of a device's kernel may have.
inline constexpr int pieces_at_once = 48;

// What a block holds: `count` elements of `piece` from `first` on.
template <class Piece>
struct PartOfPiece {
  Piece piece;
  std::int64_t first, count;
};

// Pieces cut into blocks; the blocks of all pieces are numbered one piece after the other.
template <class Piece>
class PieceTable {
 public:
  void add(const Piece& piece) {
    pieces_[count_] = piece;
    first_block_[count_ + 1] = first_block_[count_] + (piece.count + piece_block - 1) / piece_block;
    ++count_;
  }
  bool full() const { return count_ == pieces_at_once; }
  KOKKOS_INLINE_FUNCTION int pieces() const { return count_; }
  KOKKOS_INLINE_FUNCTION std::int64_t blocks() const { return first_block_[count_]; }
  // For p = pieces(): the number of blocks.
  KOKKOS_INLINE_FUNCTION std::int64_t first_block(int p) const { return first_block_[p]; }
  KOKKOS_INLINE_FUNCTION PartOfPiece<Piece> part(std::int64_t block) const {
    const int p = piece_of(block);
    const std::int64_t first = (block - first_block_[p]) * piece_block, left = pieces_[p].count - first;
    return {pieces_[p], first, left < piece_block ? left : piece_block};
  }

 private:
  KOKKOS_INLINE_FUNCTION int piece_of(std::int64_t block) const {
    int low = 0, high = count_;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_block_[middle] <= block) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  Piece pieces_[pieces_at_once] = {};
  std::int64_t first_block_[pieces_at_once + 1] = {};
  int count_ = 0;
};

// The sum of the blocks' sums: on the host in their order, on a device by a team.
template <class Member>
KOKKOS_INLINE_FUNCTION double sum_of_blocks(const Member& member, const double* blocks, std::int64_t count) {
  if constexpr (on_host) {
    (void)member;
    double total = 0;
    for (std::int64_t b = 0; b < count; ++b) total += blocks[b];
    return total;
  } else {
    return row_sum<double>(member, count, [=](const std::int64_t b) { return blocks[b]; });
  }
}

// results(first + p) = the sum of blocks(b) over the blocks of piece p.
template <class Piece>
void sum_blocks(const std::string& label, const ExecutionSpace& space, Vector<double> results, std::int64_t first,
                const PieceTable<Piece>& table, ConstVector<double> blocks) {
  for_rows(
      label, space, table.pieces(), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t p) {
        const std::int64_t begin = table.first_block(static_cast<int>(p)), end = table.first_block(static_cast<int>(p) + 1);
        const double total = sum_of_blocks(member, blocks.data() + begin, end - begin);
        row_for(member, 1, [=](const std::int64_t) { results(first + p) = total; });
      });
}

// body(piece, i) for all elements i of all pieces of the table, independent of each other.
template <class Piece, class Body>
void for_pieces(const std::string& label, const ExecutionSpace& space, const PieceTable<Piece>& table, const Body& body) {
  for_rows(
      label, space, table.blocks(), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t b) {
        const PartOfPiece<Piece> part = table.part(b);
        row_for(member, part.count, [=](const std::int64_t i) { body(part.piece, part.first + i); });
      });
}

}  // namespace minipipe::core
