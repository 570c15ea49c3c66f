#include "core/parallel/part.hpp"

#include <limits>
#include <string>

#include "core/kernels/loops.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// body(i, at): element i of the piece's linear order lies at index `at` of the array.
template <class Body>
void for_piece(const std::string& label, const ExecutionSpace& space, const Piece& piece, const Body& body) {
  const std::int64_t offset = piece.offset;
  if (piece.contiguous()) {
    for_elements(
        label, space, piece.floats(), KOKKOS_LAMBDA(const std::int64_t i) { body(i, offset + i); });
    return;
  }
  const std::int64_t columns = piece.columns;
  const std::int64_t stride = piece.stride;
  for_rows(
      label, space, piece.rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        row_for(member, columns, [=](const std::int64_t c) { body(row * columns + c, offset + row * stride + c); });
      });
}

void gather_pieces(const ExecutionSpace& space, float* values, const Pieces& pieces, const Vector<float>& array) {
  const float* from = array.data();
  for (const Piece& piece : pieces) {
    for_piece(
        "minipipe::exchange::pack", space, piece,
        KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t at) { values[i] = from[at]; });
    values += piece.floats();
  }
}

}  // namespace

void require_one_message(std::int64_t floats) {
  if (floats > std::numeric_limits<int>::max()) {
    throw InputError("a message between replicas would hold " + std::to_string(floats) +
                     " floats, more than one MPI message can (2147483647): lower model.width or model.vocab");
  }
}

MessagePart make_part(const Pieces& pieces, std::int64_t begin, std::int64_t end, ExchangeMemory memory,
                      std::int64_t& slot_floats) {
  MessagePart part;
  part.floats = end - begin;
  if (part.floats == 0) {
    return part;
  }
  require_one_message(part.floats);
  part.pieces = merged(cut(pieces, begin, end));
  if (!reaches_arrays(memory) || part.pieces.size() != 1 || !part.pieces.front().contiguous()) {
    part.staged = slot_floats;
    slot_floats += part.floats;
  }
  return part;
}

void pack(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot) {
  if (part.in_place()) {
    return;
  }
  gather_pieces(space, slot.device.data() + part.staged, part.pieces, array);
  slot.to_host(space, part.staged, part.floats);
}

void unpack(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot) {
  if (part.in_place()) {
    return;
  }
  slot.to_device(space, part.staged, part.floats);
  store(space, part.pieces, array, slot.device.data() + part.staged, false);
}

float* message_memory(const MessagePart& part, const Vector<float>& array, const StagingSlot& slot) {
  return part.in_place() ? array.data() + part.pieces.front().offset : slot.messages + part.staged;
}

void copy_packed(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot,
                 const Pieces& pieces, const Vector<float>& target) {
  if (part.floats > 0) {
    store(space, pieces, target, part.in_place() ? array.data() + part.pieces.front().offset : slot.device.data() + part.staged,
          false);
  }
}

void store(const ExecutionSpace& space, const Pieces& pieces, const Vector<float>& target, const float* values, bool add) {
  float* to = target.data();
  for (const Piece& piece : pieces) {
    if (add) {
      for_piece(
          "minipipe::exchange::add", space, piece,
          KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t at) { to[at] += values[i]; });
    } else {
      for_piece(
          "minipipe::exchange::unpack", space, piece,
          KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t at) { to[at] = values[i]; });
    }
    values += piece.floats();
  }
}

void store_scaled(const ExecutionSpace& space, const Pieces& target_pieces, const Vector<float>& target, const Pieces& pieces,
                  const Vector<float>& source, float scale, bool add) {
  // Piece by piece of the source, against the same range of the target.
  std::int64_t begin = 0;
  for (const Piece& piece : pieces) {
    std::int64_t inner = 0;
    for (const Piece& part : cut(target_pieces, begin, begin + piece.floats())) {
      const float* from = source.data();
      float* to = target.data();
      const std::int64_t columns = piece.columns;
      const std::int64_t stride = piece.stride;
      const std::int64_t offset = piece.offset;
      const std::int64_t first = inner;
      const bool plain = piece.contiguous();
      for_piece(
          "minipipe::exchange::scale", space, part, KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t at) {
            const std::int64_t n = first + i;
            const float value = scale * from[offset + (plain ? n : n / columns * stride + n % columns)];
            to[at] = add ? to[at] + value : value;
          });
      inner += part.floats();
    }
    begin += piece.floats();
  }
}

void sum_holders(const ExecutionSpace& space, float* received, std::int64_t floats, int others, const float* own,
                 int own_number, float scale) {
  constexpr std::int64_t block_size = 4096;  // the running sum of a block stays in the first-level cache
  for_rows(
      "minipipe::exchange::sum", space, (floats + block_size - 1) / block_size,
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t block) {
        const std::int64_t first = block * block_size;
        const std::int64_t count = floats - first < block_size ? floats - first : block_size;
        float* sum = received + first;
        const float* mine = own + first;
        if (own_number == 0) {
          row_for(member, count, [=](const std::int64_t i) { sum[i] = mine[i] + sum[i]; });
        }
        for (int other = 1; other <= others; ++other) {
          if (own_number == other) {
            row_for(member, count, [=](const std::int64_t i) { sum[i] += mine[i]; });
          }
          if (other < others) {
            const float* values = received + other * floats + first;
            row_for(member, count, [=](const std::int64_t i) { sum[i] += values[i]; });
          }
        }
        row_for(member, count, [=](const std::int64_t i) { sum[i] *= scale; });
      });
}

}  // namespace minipipe::core
