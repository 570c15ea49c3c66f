#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/kernels/unroll.hpp"
#include "core/kernels/vector_registers.hpp"
#include "core/types/bf16.hpp"

#if defined(__AVX512F__) && !defined(__CUDACC__)
#include <immintrin.h>
#define MINIPIPE_LANES_AVX512
#elif defined(__AVX2__) && defined(__FMA__) && !defined(__CUDACC__)
#include <immintrin.h>
#define MINIPIPE_LANES_AVX2
#endif

// Floats that fill a vector register of the host, for inner loops that must keep their sums in registers. Written with the
// vector types of GCC and Clang; only what these have no operator for is written per instruction set, and as a loop elsewhere.
// Their functions have a namespace of their own: a pack of packs.hpp is the same type, and its functions of the same names are
// others.
namespace minipipe::core::lane_vectors {

inline constexpr int lane_count = vector_bytes / sizeof(float);
inline constexpr int lane_registers = vector_registers;

using Lanes = float __attribute__((vector_size(lane_count * sizeof(float))));
using LaneBits = std::uint32_t __attribute__((vector_size(lane_count * sizeof(float))));
using LaneIndices = std::int32_t __attribute__((vector_size(lane_count * sizeof(float))));

inline Lanes load_lanes(const float* from) {
  Lanes value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline Lanes load_lanes(const bf16* from) {
#if defined(MINIPIPE_LANES_AVX512) || defined(MINIPIPE_LANES_AVX2)
  using Halves = std::uint16_t __attribute__((vector_size(lane_count * sizeof(std::uint16_t))));
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  const LaneBits bits = __builtin_convertvector(halves, LaneBits) << 16;
  Lanes value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#else
  Lanes value = {};
  for (int l = 0; l < lane_count; ++l) {
    value[l] = from[l];
  }
  return value;
#endif
}

// The first `count` of a vector, the others 0.
template <class T>
Lanes load_lanes(const T* from, int count) {
  if (count >= lane_count) return load_lanes(from);
  Lanes value = {};
  for (int l = 0; l < count; ++l) {
    value[l] = from[l];
  }
  return value;
}

inline void store_lanes(float* to, Lanes value) { std::memcpy(to, &value, sizeof value); }

// Compilers would rather read a vector again from memory for every product with it, more than caches deliver.
inline void keep_in_register([[maybe_unused]] Lanes& value) {
#if defined(MINIPIPE_LANES_AVX512)
  asm("" : "+v"(value));
#elif defined(MINIPIPE_LANES_AVX2)
  asm("" : "+x"(value));
#endif
}

inline Lanes all_lanes(float value) { return value - Lanes{}; }  // x - 0 is x to the last bit, also for -0

// a b + c, rounded once where the target has the instruction.
inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
#if defined(MINIPIPE_LANES_AVX512)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(MINIPIPE_LANES_AVX2)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  for (int l = 0; l < lane_count; ++l) {
    c[l] = __builtin_fmaf(a[l], b[l], c[l]);
  }
  return c;
#else
  return a * b + c;
#endif
}

// The larger and the smaller, lane by lane; b where either is not a number. (With a mask: of the plain form g++ 12 says that it
// uses something uninitialised.)
inline Lanes larger(Lanes a, Lanes b) {
#if defined(MINIPIPE_LANES_AVX512)
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif defined(MINIPIPE_LANES_AVX2)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline Lanes smaller(Lanes a, Lanes b) {
#if defined(MINIPIPE_LANES_AVX512)
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif defined(MINIPIPE_LANES_AVX2)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// By halving.
inline float sum_of_lanes(Lanes values) {
  for (int half = lane_count / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) {
      values[l] += values[l + half];
    }
  }
  return values[0];
}

// 0, 1, 2, ..
inline LaneIndices lane_indices() {
  LaneIndices result = {};
  for (int l = 0; l < lane_count; ++l) {
    result[l] = l;
  }
  return result;
}

// The method, the limits and the accuracy of exponential(float) in math.hpp.
inline Lanes exponential(Lanes x) {
  const Lanes rounder = all_lanes(12582912.0F);
  x = larger(all_lanes(-87.3F), x);
  x = smaller(all_lanes(88.0F), x);
  const Lanes shifted = multiply_add(x, all_lanes(1.44269504F), rounder);
  const Lanes n = rounder - shifted;
  const Lanes r = multiply_add(n, all_lanes(-2.12194440e-4F), multiply_add(n, all_lanes(0.693359375F), x));
  Lanes p = all_lanes(1.0F / 5040);
  p = multiply_add(p, r, all_lanes(1.0F / 720));
  p = multiply_add(p, r, all_lanes(1.0F / 120));
  p = multiply_add(p, r, all_lanes(1.0F / 24));
  p = multiply_add(p, r, all_lanes(1.0F / 6));
  p = multiply_add(p, r, all_lanes(0.5F));
  p = multiply_add(p, r, all_lanes(1.0F));
  p = multiply_add(p, r, all_lanes(1.0F));
  LaneBits bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000U;
  Lanes power;
  std::memcpy(&power, &bits, sizeof power);
  return p * power;
}

#if defined(MINIPIPE_LANES_AVX512) || defined(MINIPIPE_LANES_AVX2)
// One step of the transposition below: exchanges the off-diagonal blocks of `Half` lanes of rows a and b.
template <int Half, int... L>
void exchange_blocks(Lanes& a, Lanes& b, std::integer_sequence<int, L...>) {
  const Lanes upper = __builtin_shufflevector(a, b, ((L & Half) == 0 ? L : L - Half + lane_count)...);
  const Lanes lower = __builtin_shufflevector(a, b, ((L & Half) == 0 ? L + Half : L + lane_count)...);
  a = upper;
  b = lower;
}

template <int Half>
[[gnu::always_inline]] inline void transpose_blocks(Lanes (&rows)[lane_count]) {
  MINIPIPE_UNROLL(32)
  for (int i = 0; i < lane_count; ++i) {
    if ((i & Half) == 0) {
      exchange_blocks<Half>(rows[i], rows[i + Half], std::make_integer_sequence<int, lane_count>());
    }
  }
  if constexpr (Half > 1) {
    transpose_blocks<Half / 2>(rows);
  }
}

// Element l of row i becomes element i of row l, by halving (Eklundh, IEEE Trans. Comput. C-21, 801, 1972).
[[gnu::always_inline]] inline void transpose(Lanes (&rows)[lane_count]) { transpose_blocks<lane_count / 2>(rows); }
#else
inline void transpose(Lanes (&rows)[lane_count]) {
  for (int i = 0; i < lane_count; ++i) {
    for (int l = 0; l < i; ++l) {
      const float value = rows[i][l];
      rows[i][l] = rows[l][i];
      rows[l][i] = value;
    }
  }
}
#endif

}  // namespace minipipe::core::lane_vectors

namespace minipipe::core {
using namespace lane_vectors;
}
