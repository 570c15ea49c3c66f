#pragma once

#include <cstdint>

#include "core/model/piece.hpp"
#include "core/parallel/staging.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// A part of a bucket as a message carries it: from or to where it lies in its array if it is one run there and messages
// can reach that memory, else packed in a slot of the staging memory.
struct MessagePart {
  Pieces pieces;             // merged
  std::int64_t floats = 0;   // 0: there is no message
  std::int64_t staged = -1;  // offset in the slot, -1: where it lies
  bool in_place() const { return staged < 0; }
};

// InputError if it is more than one MPI message can carry.
void require_one_message(std::int64_t floats);

// The part [begin, end) of the linear order of `pieces`. Adds what it needs in the slot to `slot_floats`.
// Throws InputError if it is more than one MPI message can carry.
MessagePart make_part(const Pieces& pieces, std::int64_t begin, std::int64_t end, ExchangeMemory memory,
                      std::int64_t& slot_floats);

// Packs a part of `array` that is not sent from where it lies. Messages may read it after what this enqueues.
void pack(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot);
// Unpacks a part that was not received where it lies.
void unpack(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot);
// What messages read or write.
float* message_memory(const MessagePart& part, const Vector<float>& array, const StagingSlot& slot);

// The part is in its array and, if it is not in place, packed. Writes it to where `pieces` lie in `target`.
void copy_packed(const ExecutionSpace& space, const MessagePart& part, const Vector<float>& array, const StagingSlot& slot,
                 const Pieces& pieces, const Vector<float>& target);

// The elements at `pieces` of `target` = values, or += values.
void store(const ExecutionSpace& space, const Pieces& pieces, const Vector<float>& target, const float* values, bool add);
// Those of `target` (the same number) = scale * those of `source`, or += that. The same memory or none in common.
void store_scaled(const ExecutionSpace& space, const Pieces& target_pieces, const Vector<float>& target, const Pieces& pieces,
                  const Vector<float>& source, float scale, bool add);

// received: what other holders sent, one after the other in ascending order, `floats` each, `others` >= 1 of them. Its first
// `floats` become scale * (the sum of all holders' values in ascending order, `own` being those of number own_number).
void sum_holders(const ExecutionSpace& space, float* received, std::int64_t floats, int others, const float* own,
                 int own_number, float scale);

}  // namespace minipipe::core
