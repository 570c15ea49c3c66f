#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace minipipe::schedules {

// Vigna's splitmix64 (Steele, Lea and Flood, OOPSLA 2014). Own code because the distributions of <random> differ between
// standard libraries, and masks must be the same wherever a run is resumed.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mixed(state_);
  }

  // One of 0 .. count-1; count in 1 .. 2^31-1. The bias of the multiplication, count / 2^32, does not matter here.
  int below(int count) {
    return static_cast<int>(((next() >> 32) * static_cast<std::uint64_t>(static_cast<std::uint32_t>(count))) >> 32);
  }

  // 0 .. count-1 in random order (Fisher and Yates).
  std::vector<int> permutation(int count) {
    std::vector<int> order(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
    for (int i = count - 1; i > 0; --i) {
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(below(i + 1))]);
    }
    return order;
  }

  static std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace minipipe::schedules
