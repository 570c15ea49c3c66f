#pragma once

#include <cstdint>

namespace minipipe::data {

// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection of 64-bit words in which every input bit moves
// every output bit.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Hash of an ordered pair.
constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return mix(mix(a) ^ b); }

// Uniform in [0, 1): the top 53 bits.
constexpr double unit_interval(std::uint64_t x) { return static_cast<double>(x >> 11) * 0x1.0p-53; }

}  // namespace minipipe::data
