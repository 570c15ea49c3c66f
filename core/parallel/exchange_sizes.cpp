#include "core/parallel/exchange_sizes.hpp"

#include <algorithm>

#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/part.hpp"

namespace minipipe::core {

namespace {

// Messages cut from a list of pieces in ascending order.
class Messages {
 public:
  Messages(const Pieces& pieces, ExchangeMemory memory) : pieces_(pieces), reached_(reaches_arrays(memory)) {}

  // Floats of the message [begin, end) that are packed: all or none, as make_part has it.
  std::int64_t packed(std::int64_t begin, std::int64_t end) {
    if (begin == end) return 0;
    require_one_message(end - begin);
    return reached_ && one_run(begin, end) ? 0 : end - begin;
  }

 private:
  bool one_run(std::int64_t begin, std::int64_t end) {
    while (next_ < pieces_.size() && start_ + pieces_[next_].floats() <= begin) start_ += pieces_[next_++].floats();
    if (next_ == pieces_.size()) return false;
    const Piece& first = pieces_[next_];
    const std::int64_t in_piece = begin - start_;
    const std::int64_t row = first.contiguous() ? 0 : in_piece / first.columns;
    std::int64_t address = first.offset + row * (first.stride - first.columns) + in_piece;  // of the run's end, below
    std::int64_t floats = (first.contiguous() ? first.floats() : (row + 1) * first.columns) - in_piece;
    bool ends_piece = first.contiguous() || row + 1 == first.rows;
    address += floats;
    // Pieces that happen to lie next to each other are one run.
    for (std::size_t p = next_ + 1; floats < end - begin && ends_piece && p < pieces_.size(); ++p) {
      const Piece& piece = pieces_[p];
      if (piece.offset != address) return false;
      const std::int64_t run = piece.contiguous() ? piece.floats() : piece.columns;
      ends_piece = piece.contiguous();
      address += run;
      floats += run;
    }
    return floats >= end - begin;
  }

  const Pieces& pieces_;
  bool reached_;
  std::size_t next_ = 0;
  std::int64_t start_ = 0;  // of that piece in linear order
};

int parts_of(const ReplicaOptions& options) { return options.sharded() ? transfers_in_flight : 1; }

// Part number `part` of a holder's shard.
LinearRange range(const Bucket& bucket, int holder, int part, int parts) {
  const std::int64_t first = bucket.shard_begin(holder), floats = bucket.shard_end(holder) - first;
  return {first + part_begin(floats, part, parts), first + part_begin(floats, part + 1, parts)};
}

std::int64_t packed(const Pieces& pieces, const Bucket& bucket, ExchangeMemory memory, int part = 0, int parts = 1) {
  Messages messages(pieces, memory);
  std::int64_t floats = 0;
  for (int h = 0; h < static_cast<int>(bucket.holders.size()); ++h) {
    const LinearRange message = range(bucket, h, part, parts);
    floats += messages.packed(message.begin, message.end);
  }
  return floats;
}

std::int64_t packed_whole(const Pieces& pieces, const Bucket& bucket, ExchangeMemory memory) {
  return Messages(pieces, memory).packed(0, bucket.floats);
}

void grow(std::int64_t& most, std::int64_t floats) { most = std::max(most, floats); }

// All replicas that do not hold a bucket get it from one that does.
bool refreshes(const ReplicaOptions& options) { return options.sdp() && options.backward_masking && !options.sharded(); }

// Those that do not hold a layer gather it, too.
bool everyone_gathers(const ReplicaOptions& options) { return options.sdp() && options.backward_masking; }

}  // namespace

ExchangeSizer::ExchangeSizer(const ReplicaLayout& layout, ExchangeMemory memory) : memory_(memory) {
  const ReplicaOptions& options = layout.options;
  require_exchange_sense(options);
  for (const Bucket& bucket : layout.buckets) {
    Packed& sums = buckets_.emplace_back();
    const bool held = bucket.number_of(options.replica) >= 0;
    if (refreshes(options)) sums.weights = packed_whole(bucket.parameters, bucket, memory);
    if (!held || bucket.holders.size() == 1) continue;
    for (int part = 0; !options.averages() && part < parts_of(options); ++part) {
      sums.gradients.push_back(packed(bucket.gradients, bucket, memory, part, parts_of(options)));
    }
    if (options.averages()) sums.averages = packed(bucket.parameters, bucket, memory);
    if (layout.zero1()) sums.weights = packed(bucket.parameters, bucket, memory);
  }
  for (const auto& layer : layout.layers) {
    layers_.emplace_back();
    for (const Bucket& bucket : layer) {
      Packed& sums = layers_.back().emplace_back();
      const bool gathered = everyone_gathers(options) || bucket.number_of(options.replica) >= 0;
      if (options.sharded()) {
        if (gathered) sums.parameters = packed(bucket.parameters, bucket, memory);
        sums.full = packed(bucket.full, bucket, memory);
      } else if (options.sdp()) {
        sums.full = packed_whole(bucket.full, bucket, memory);
        if (gathered) sums.parameters = packed_whole(bucket.parameters, bucket, memory);
      }
    }
  }
}

ExchangeSizes ExchangeSizer::sizes(const ReplicaLayout& layout) const {
  const ReplicaOptions& options = layout.options;
  const int me = options.replica;
  ExchangeSizes sizes;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const Bucket& bucket = layout.buckets[b];
    const Packed& sums = buckets_[b];
    const int number = bucket.number_of(me);
    const auto peers = static_cast<std::int64_t>(bucket.holders.size()) - 1;
    if (refreshes(options)) {
      const std::int64_t lacking = options.replicas - 1 - peers;
      const bool sends = me == bucket.sender && lacking > 0;
      if (number < 0 || sends) grow(sizes.gather_slot_floats, sums.weights);
      if (sends) sizes.weights += bucket.floats * lacking;
    }
    if (number < 0 || peers == 0) continue;
    const std::int64_t own = bucket.shard(me).floats();
    if (options.averages()) {
      grow(sizes.reduce_slot_floats, sums.averages + peers * own);
      sizes.averaged += bucket.floats - own + peers * own;
    } else {
      for (int part = 0; part < parts_of(options); ++part) {
        const std::int64_t floats = range(bucket, number, part, parts_of(options)).floats();
        grow(sizes.reduce_slot_floats, sums.gradients[static_cast<std::size_t>(part)] + peers * floats);
      }
      sizes.scattered += bucket.floats - own;
      const bool all = !options.sharded() && !layout.zero1();
      if (all) sizes.returned += peers * own;
    }
    if (layout.zero1()) {
      grow(sizes.gather_slot_floats, sums.weights);
      sizes.weights += peers * own;
    }
  }
  for (std::size_t l = 0; l < layout.layers.size(); ++l) {
    sizes.layers.push_back(0);
    for (std::size_t b = 0; b < layout.layers[l].size(); ++b) {
      const Bucket& bucket = layout.layers[l][b];
      const Packed& sums = layers_[l][b];
      const int number = bucket.number_of(me);
      if (!options.sharded()) {
        // An evaluation: the first holder sends to those that lack it, and each holder packs its own.
        if (options.sdp()) grow(sizes.gather_slot_floats, number < 0 ? sums.full : sums.parameters);
        continue;
      }
      const LinearRange own = bucket.shard(me);
      // The own shard is in an array of shards, and not where the others' come to.
      const auto slot = [&](std::int64_t all, const Pieces& target) {
        if (own.floats() == 0) return all;
        return all - Messages(target, memory_).packed(own.begin, own.end) + (reaches_arrays(memory_) ? 0 : own.floats());
      };
      if (number >= 0 || everyone_gathers(options)) {
        grow(sizes.gather_slot_floats, slot(sums.parameters, bucket.parameters));
        const auto gathering = everyone_gathers(options) ? std::int64_t{options.replicas} : std::ssize(bucket.holders);
        sizes.layers.back() += own.floats() * (gathering - 1);
      }
      grow(sizes.gather_slot_floats, slot(sums.full, bucket.full));
    }
  }
  return sizes;
}

}  // namespace minipipe::core
