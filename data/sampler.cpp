#include "data/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "data/hash.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

// Domain separation: the two uses of (seed, epoch) must not share bits.
constexpr std::uint64_t offset_purpose = 0x6f66667365740000u;
constexpr std::uint64_t order_purpose = 0x6f72646572000000u;

// A keyed permutation of [0, size): a balanced Feistel network on 2h bits, 4^h >= size, applied again while the value is not
// below size. As 4^h < 4 size, fewer than four applications are expected.
std::uint64_t permute(std::uint64_t value, std::uint64_t size, std::uint64_t key) {
  const int half = std::max(1, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      left ^= mix(key + round, right) & mask;
      std::swap(left, right);
    }
    value = (left << half) | right;
  } while (value >= size);
  return value;
}

}  // namespace

Sampler::Sampler(const TokenFile& file, std::uint64_t seed, std::int64_t microbatch_size, std::int64_t sequence)
    : Sampler(file, seed, microbatch_size, sequence, true) {}

Sampler Sampler::sequential(const TokenFile& file, std::int64_t microbatch_size, std::int64_t sequence) {
  return Sampler(file, 0, microbatch_size, sequence, false);
}

Sampler::Sampler(const TokenFile& file, std::uint64_t seed, std::int64_t microbatch_size, std::int64_t sequence, bool random)
    : file_(&file), seed_(seed), microbatch_size_(microbatch_size), sequence_(sequence), random_(random) {
  if (sequence < 1 || microbatch_size < 1) {
    throw InputError("train.sequence = " + std::to_string(sequence) +
                     " and train.microbatch_size = " + std::to_string(microbatch_size) + " must be at least 1");
  }
  const std::int64_t whole = (file.size() - 1) / sequence;
  if (whole < 1) {
    throw InputError("'" + file.path() + "' holds " + std::to_string(file.size()) +
                     " tokens, fewer than train.sequence + 1 = " + std::to_string(sequence + 1) +
                     "; lower train.sequence or give a longer file");
  }
  // Random order leaves room for offsets up to sequence - 1, where the file is long enough for that.
  windows_ = random ? std::max<std::int64_t>(1, (file.size() - sequence) / sequence) : whole;
}

std::int64_t Sampler::microbatches() const { return std::max<std::int64_t>(1, windows_ / microbatch_size_); }

std::int64_t Sampler::window_start(std::int64_t draw) const {
  const std::int64_t position = draw % windows_;
  if (!random_) return position * sequence_;
  const auto epoch = static_cast<std::uint64_t>(draw / windows_);
  const std::int64_t slack = std::min(sequence_ - 1, file_->size() - 1 - windows_ * sequence_);
  const std::uint64_t hash = mix(mix(seed_, offset_purpose), epoch);
  const auto offset = static_cast<std::int64_t>(hash % (static_cast<std::uint64_t>(slack) + 1));
  const std::uint64_t key = mix(mix(seed_, order_purpose), epoch);
  const std::uint64_t window = permute(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(windows_), key);
  return offset + static_cast<std::int64_t>(window) * sequence_;
}

void Sampler::batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) const {
  for (std::int64_t row = 0; row < microbatch_size_; ++row) {
    const std::int64_t start = window_start(microbatch * microbatch_size_ + row);
    file_->read(start, sequence_, tokens + row * sequence_);
    file_->read(start + 1, sequence_, targets + row * sequence_);
  }
}

}  // namespace minipipe::data
