#pragma once

#include <cstring>
#include <utility>

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/unroll.hpp"
#include "core/kernels/vector_registers.hpp"

#if defined(__FMA__) && !defined(__CUDACC__) && !defined(__HIPCC__)
#include <immintrin.h>
#if defined(__AVX512F__)
#define MINIPIPE_PACKS_AVX512
#elif defined(__AVX2__)
#define MINIPIPE_PACKS_AVX2
#endif
#endif

// Vectors as long as a register of the host, for arithmetic that compilers do not turn into good vector code by themselves:
// clamps that keep what is not a number, reciprocals, whole functions. Beside each the same for one number.
namespace minipipe::core {

// Elements of a pack, which fills a vector register: compilers keep longer ones in memory.
template <class C>
inline constexpr int pack_size = vector_bytes / sizeof(C);

template <class C>
struct PackTypes;
template <>
struct PackTypes<float> {
  typedef float Values __attribute__((vector_size(vector_bytes)));
  typedef std::int32_t Integers __attribute__((vector_size(vector_bytes)));
  typedef std::uint32_t Bits __attribute__((vector_size(vector_bytes)));
};
template <>
struct PackTypes<double> {
  typedef double Values __attribute__((vector_size(vector_bytes)));
  typedef std::int64_t Integers __attribute__((vector_size(vector_bytes)));
};
template <class C>
using Pack = typename PackTypes<C>::Values;
typedef std::uint16_t Halves __attribute__((vector_size(vector_bytes / 2)));

#if defined(MINIPIPE_PACKS_AVX512)
// g++ 12 takes the forms without a mask to use values that are not set.
inline constexpr __mmask16 whole_mask = 0xffff;
#endif

inline Pack<float> multiply_add(Pack<float> a, Pack<float> b, Pack<float> c) {
#if defined(MINIPIPE_PACKS_AVX512)
  return (Pack<float>)_mm512_maskz_fmadd_ps(whole_mask, (__m512)a, (__m512)b, (__m512)c);
#elif defined(MINIPIPE_PACKS_AVX2)
  return (Pack<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  for (int l = 0; l < pack_size<float>; ++l) c[l] = multiply_add(a[l], b[l], c[l]);
  return c;
#endif
}
inline Pack<double> multiply_add(Pack<double> a, Pack<double> b, Pack<double> c) {
  for (int l = 0; l < pack_size<double>; ++l) c[l] = multiply_add(a[l], b[l], c[l]);
  return c;
}

// The larger and the smaller of x and a bound; x where it is not a number.
KOKKOS_INLINE_FUNCTION float at_least(float bound, float x) { return bound > x ? bound : x; }
KOKKOS_INLINE_FUNCTION float at_most(float bound, float x) { return bound < x ? bound : x; }
inline Pack<float> at_least(Pack<float> bound, Pack<float> x) {
#if defined(MINIPIPE_PACKS_AVX512)
  return (Pack<float>)_mm512_maskz_max_ps(whole_mask, (__m512)bound, (__m512)x);
#elif defined(MINIPIPE_PACKS_AVX2)
  return (Pack<float>)_mm256_max_ps((__m256)bound, (__m256)x);
#else
  return bound > x ? bound : x;
#endif
}
inline Pack<float> at_most(Pack<float> bound, Pack<float> x) {
#if defined(MINIPIPE_PACKS_AVX512)
  return (Pack<float>)_mm512_maskz_min_ps(whole_mask, (__m512)bound, (__m512)x);
#elif defined(MINIPIPE_PACKS_AVX2)
  return (Pack<float>)_mm256_min_ps((__m256)bound, (__m256)x);
#else
  return bound < x ? bound : x;
#endif
}
inline Pack<double> at_least(Pack<double> bound, Pack<double> x) { return bound > x ? bound : x; }

inline Pack<float> square_root(Pack<float> x) {
#if defined(MINIPIPE_PACKS_AVX512)
  return (Pack<float>)_mm512_maskz_sqrt_ps(whole_mask, (__m512)x);
#elif defined(MINIPIPE_PACKS_AVX2)
  return (Pack<float>)_mm256_sqrt_ps((__m256)x);
#else
  float lanes[pack_size<float>];
  std::memcpy(lanes, &x, sizeof x);
  for (float& lane : lanes) lane = square_root(lane);
  std::memcpy(&x, lanes, sizeof x);
  return x;
#endif
}

// The value in all lanes. (Written out in place, or as a lambda, this makes nvcc 13 crash.)
template <class V>
inline V all(float value) {
  return V{} + value;
}
template <>
KOKKOS_INLINE_FUNCTION float all<float>(float value) {
  return value;
}

// 2^x for x clamped to [-125, 125]: n the nearest integer, a polynomial in x - n (minimax, relative error 2e-9, 1 at 0), and n
// added to its exponent. The relative error is below 2e-7. Not a number stays not a number.
inline constexpr float exp2_rounder = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
#define MINIPIPE_EXP2_FRACTION(V, p, r)                                                   \
  V p = multiply_add(all<V>(0.00015353361959569156F), r, all<V>(0.0013398873852565885F)); \
  p = multiply_add(p, r, all<V>(0.00961843691766262F));                                   \
  p = multiply_add(p, r, all<V>(0.055503323674201965F));                                  \
  p = multiply_add(p, r, all<V>(0.24022647738456726F));                                   \
  p = multiply_add(p, r, all<V>(0.6931471824645996F));                                    \
  p = multiply_add(p, r, all<V>(1.0F))

KOKKOS_INLINE_FUNCTION float power_of_two(float x) {
  x = at_most(125.0F, at_least(-125.0F, x));
  const float shifted = x + exp2_rounder;
  const float r = x - (shifted - exp2_rounder);
  MINIPIPE_EXP2_FRACTION(float, p, r);
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
#else
  std::uint32_t bits, exponent;
  std::memcpy(&bits, &p, sizeof bits);
  std::memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
#endif
}
KOKKOS_INLINE_FUNCTION double power_of_two(double x) { return ::exp2(x); }
inline Pack<float> power_of_two(Pack<float> x) {
  using Bits = PackTypes<float>::Bits;
  x = at_most(all<Pack<float>>(125.0F), at_least(all<Pack<float>>(-125.0F), x));
  const Pack<float> shifted = x + exp2_rounder;
  const Pack<float> r = x - (shifted - exp2_rounder);
  MINIPIPE_EXP2_FRACTION(Pack<float>, p, r);
  return (Pack<float>)((Bits)p + ((Bits)shifted << 23));
}
inline Pack<double> power_of_two(Pack<double> x) {
  for (int l = 0; l < pack_size<double>; ++l) x[l] = ::exp2(x[l]);
  return x;
}
#undef MINIPIPE_EXP2_FRACTION

// The largest lane, and the sum of the lanes: the upper half is added to the lower one until one is left.
template <class V>
inline auto largest_lane(V x) {
  auto result = x[0];
  for (int l = 1; l < static_cast<int>(sizeof x / sizeof x[0]); ++l) result = result < x[l] ? x[l] : result;
  return result;
}
// Lane l of the result is lane l ^ Distance of x.
template <int Distance, int... L>
inline Pack<float> exchanged(Pack<float> x, std::integer_sequence<int, L...>) {
  return __builtin_shuffle(x, PackTypes<float>::Integers{(L ^ Distance)...});
}
// combine(a, b) of lanes `Distance`, Distance / 2 .. 1 apart.
template <int Distance, class Combine>
inline Pack<float> folded(Pack<float> x, const Combine& combine) {
  x = combine(x, exchanged<Distance>(x, std::make_integer_sequence<int, pack_size<float>>()));
  if constexpr (Distance > 1) {
    return folded<Distance / 2>(x, combine);
  } else {
    return x;
  }
}
inline float largest_lane(Pack<float> x) {
  return folded<pack_size<float> / 2>(x, [](Pack<float> a, Pack<float> b) { return at_least(a, b); })[0];
}
inline float sum_of_lanes(Pack<float> x) {
  return folded<pack_size<float> / 2>(x, [](Pack<float> a, Pack<float> b) { return a + b; })[0];
}
inline double sum_of_lanes(Pack<double> x) {
  for (int half = pack_size<double> / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) x[l] += x[l + half];
  }
  return x[0];
}

}  // namespace minipipe::core
