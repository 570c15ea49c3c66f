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
// Elementwise kernels on vectors as long as a register, for arithmetic that compilers do not turn into good vector code by
// themselves: clamps that keep what is not a number, reciprocals, whole functions. A body is a template over `Lanes`, which
// says what is loaded and stored at a place: a pack on the host, a part of one at the end of an array, one element on a device.
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

// ---- arithmetic -----------------------------------------------------------------------------------------------------------

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

// ---- loads and stores -----------------------------------------------------------------------------------------------------

template <class C>
inline Pack<C> load_pack(const C* place) {
  Pack<C> x;
  std::memcpy(&x, place, sizeof x);
  return x;
}
inline Pack<float> widened(Halves x) {
#if defined(MINIPIPE_PACKS_AVX512)
  return (Pack<float>)((PackTypes<float>::Bits)_mm512_maskz_cvtepu16_epi32(whole_mask, (__m256i)x) << 16);
#elif defined(MINIPIPE_PACKS_AVX2)
  return (Pack<float>)((PackTypes<float>::Bits)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#else
  return (Pack<float>)(__builtin_convertvector(x, PackTypes<float>::Bits) << 16);
#endif
}
inline Pack<float> load_pack(const bf16* place) {
  Halves x;
  std::memcpy(&x, place, sizeof x);
  return widened(x);
}
template <class C>
inline void store_pack(C* place, Pack<C> x) {
  std::memcpy(place, &x, sizeof x);
}
// Rounds as bf16 does.
inline Halves round_pack(Pack<float> x) {
#if defined(MINIPIPE_PACKS_AVX512) && defined(__AVX512BF16__)
  // The instruction takes subnormal numbers for zeros.
  constexpr int subnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask((__m512)x, subnormal) == 0, 1)) return (Halves)_mm512_cvtneps_pbh((__m512)x);
#endif
  using Bits = PackTypes<float>::Bits;
  const Bits wide = (Bits)x;
  const Bits nearest = (wide + 0x7fffU + (wide >> 16 & 1U)) >> 16;
  const Bits quiet = wide >> 16 | 0x40U;
#if defined(MINIPIPE_PACKS_AVX2)
  const auto stored = (__m256i)(x != x ? quiet : nearest);
  return (Halves)_mm_packus_epi32(_mm256_castsi256_si128(stored), _mm256_extracti128_si256(stored, 1));
#else
  const Bits stored = (wide & 0x7fffffffU) > 0x7f800000U ? quiet : nearest;
  return __builtin_convertvector(stored, Halves);
#endif
}
inline void store_pack(bf16* place, Pack<float> x) {
  const Halves stored = round_pack(x);
  std::memcpy(place, &stored, sizeof stored);
}

// Brings what lies there closer while something else is computed: into the second cache, into the first one, and into the first
// one to be written. The place may lie outside the array.
inline void prefetch([[maybe_unused]] const void* place) {
#if defined(__GNUC__)
  __builtin_prefetch(place, 0, 2);
#endif
}
inline void prefetch_near([[maybe_unused]] const void* place) {
#if defined(__GNUC__)
  __builtin_prefetch(place, 0, 3);
#endif
}
inline void prefetch_to_write([[maybe_unused]] const void* place) {
#if defined(__GNUC__)
  __builtin_prefetch(place, 1, 3);
#endif
}

struct WholePack {
  template <class T>
  Pack<Compute<T>> load(const T* place) const {
    return load_pack(place);
  }
  template <class T>
  void store(T* place, Pack<Compute<T>> x) const {
    store_pack(place, x);
  }
  template <class C>
  Pack<C> all(C value) const {
    return Pack<C>{} + value;
  }
  template <class V>
  V or_else(V x, V) const {
    return x;
  }
};

// The first `count` lanes of a pack, fewer than all; those beyond are not read or written, and loaded as zero.
template <class T>
inline Pack<Compute<T>> load_part(const T* place, int count) {
  T buffer[pack_size<Compute<T>>] = {};
  for (int l = 0; l < count; ++l) buffer[l] = place[l];
  return load_pack(buffer);
}
template <class T>
inline void store_part(T* place, int count, Pack<Compute<T>> x) {
  T buffer[pack_size<Compute<T>>];
  store_pack(buffer, x);
  for (int l = 0; l < count; ++l) place[l] = buffer[l];
}
#if defined(MINIPIPE_PACKS_AVX512)
inline unsigned part_mask(int count) { return (1U << count) - 1; }
inline Pack<float> load_part(const float* place, int count) {
  return (Pack<float>)_mm512_maskz_loadu_ps(static_cast<__mmask16>(part_mask(count)), place);
}
inline void store_part(float* place, int count, Pack<float> x) {
  _mm512_mask_storeu_ps(place, static_cast<__mmask16>(part_mask(count)), (__m512)x);
}
#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline Pack<float> load_part(const bf16* place, int count) {
  return widened((Halves)_mm256_maskz_loadu_epi16(static_cast<__mmask16>(part_mask(count)), place));
}
inline void store_part(bf16* place, int count, Pack<float> x) {
  _mm256_mask_storeu_epi16(place, static_cast<__mmask16>(part_mask(count)), (__m256i)round_pack(x));
}
#endif
#elif defined(MINIPIPE_PACKS_AVX2)
// The sign of a lane says whether it counts.
inline __m256i part_mask(int count) { return (__m256i)((PackTypes<float>::Integers{0, 1, 2, 3, 4, 5, 6, 7} - count)); }
inline Pack<float> load_part(const float* place, int count) { return (Pack<float>)_mm256_maskload_ps(place, part_mask(count)); }
inline void store_part(float* place, int count, Pack<float> x) { _mm256_maskstore_ps(place, part_mask(count), (__m256)x); }
#endif

// The first `count` lanes; the others are zero and stay in registers.
struct PartOfPack {
  int count;

  template <class T>
  Pack<Compute<T>> load(const T* place) const {
    return load_part(place, count);
  }
  template <class T>
  void store(T* place, Pack<Compute<T>> x) const {
    store_part(place, count, x);
  }
  template <class C>
  Pack<C> all(C value) const {
    return Pack<C>{} + value;
  }
  // x in the lanes that count, `other` in those beyond.
  template <class V>
  V or_else(V x, V other) const {
    for (int l = count; l < static_cast<int>(sizeof x / sizeof x[0]); ++l) x[l] = other[l];
    return x;
  }
  Pack<float> or_else(Pack<float> x, Pack<float> other) const {
#if defined(MINIPIPE_PACKS_AVX512)
    return (Pack<float>)_mm512_mask_blend_ps(static_cast<__mmask16>(part_mask(count)), (__m512)other, (__m512)x);
#elif defined(MINIPIPE_PACKS_AVX2)
    return (Pack<float>)_mm256_blendv_ps((__m256)other, (__m256)x, (__m256)part_mask(count));
#else
    return or_else<Pack<float>>(x, other);
#endif
  }
};

struct OneLane {
  template <class T>
  KOKKOS_INLINE_FUNCTION Compute<T> load(const T* place) const {
    return *place;
  }
  template <class T>
  KOKKOS_INLINE_FUNCTION void store(T* place, Compute<T> x) const {
    *place = x;
  }
  template <class C>
  KOKKOS_INLINE_FUNCTION C all(C value) const {
    return value;
  }
};

// The value as T stores it.
template <class T>
inline Pack<Compute<T>> as_stored(Pack<Compute<T>> x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return widened(round_pack(x));
  } else {
    return x;
  }
}

// ---- loops ----------------------------------------------------------------------------------------------------------------

// body(lanes, i) for all first <= i < end, a pack at a time on the host; only there.
template <class C, class Body>
inline void each_pack(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + pack_size<C> <= end; i += pack_size<C>) body(WholePack{}, i);
  if (i < end) body(PartOfPack{static_cast<int>(end - i)}, i);
}

// body(lanes, i, part): the same, the packs going round `Parts` parts, each of which is a chain of operations of its own.
template <class C, int Parts, class Body>
inline void each_pack_in_parts(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + Parts * pack_size<C> <= end; i += Parts * pack_size<C>) {
    MINIPIPE_UNROLL(8)
    for (int part = 0; part < Parts; ++part) body(WholePack{}, i + part * pack_size<C>, part);
  }
  each_pack<C>(
      i, end, [&](const auto& lanes, std::int64_t place) { body(lanes, place, static_cast<int>((place - i) / pack_size<C>)); });
}

// operation(k) for all k < Count.
template <int Count, class Operation>
[[gnu::always_inline]] inline void each_of(const Operation& operation) {
  MINIPIPE_UNROLL(8)
  for (int k = 0; k < Count; ++k) operation(k);
}

// body(lanes, i, count) for all first <= i < end: `Count` packs at a time from place i on, and what is left one by one; `count`
// is a constant.
template <class C, int Count, class Body>
inline void each_few_packs(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + Count * pack_size<C> <= end; i += Count * pack_size<C>) {
    body(WholePack{}, i, std::integral_constant<int, Count>{});
  }
  each_pack<C>(i, end, [&](const auto& lanes, std::int64_t place) { body(lanes, place, std::integral_constant<int, 1>{}); });
}

// body(lanes, i) covers all i < count, independent of each other.
template <class C, class Body>
void for_packs(const std::string& label, const ExecutionSpace& space, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    constexpr std::int64_t block = 4096;
    Kokkos::parallel_for(label, RowRange(space, 0, (count + block - 1) / block), [=](std::int64_t b) {
      each_pack<C>(b * block, b * block + block < count ? b * block + block : count, body);
    });
  } else {
    Kokkos::parallel_for(
        label, RowRange(space, 0, count), KOKKOS_LAMBDA(const std::int64_t i) { body(OneLane{}, i); });
  }
}

// body(lanes, c) covers the columns of a row inside for_rows.
template <class C, class Member, class Body>
KOKKOS_INLINE_FUNCTION void row_packs(const Member& member, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    (void)member;
    each_pack<C>(0, count, body);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(member, count), [&](const std::int64_t c) { body(OneLane{}, c); });
    member.team_barrier();
  }
}

// ---- several rows or columns at a time, on the host -----------------------------------------------------------------------

// Sums over one row take long to come out of the pipeline; `Count` rows side by side fill it. A row's result does not depend on
// its neighbours. body(count, first): `count` is a constant, `first` the first of as many rows.
template <int Count, class Body>
void for_row_groups(const std::string& label, const ExecutionSpace& space, std::int64_t rows, const Body& body) {
  Kokkos::parallel_for(label, RowRange(space, 0, (rows + Count - 1) / Count), [=](std::int64_t group) {
    const std::int64_t first = group * Count;
    if (first + Count <= rows) {
      body(std::integral_constant<int, Count>{}, first);
    } else {
      for (std::int64_t row = first; row < rows; ++row) body(std::integral_constant<int, 1>{}, row);
    }
  });
}

// The same with as many rows as fill it: short rows are more at a time, with a sum each in half the registers.
inline constexpr std::int64_t short_row = 256;
template <class Body>
void for_row_groups(const std::string& label, const ExecutionSpace& space, std::int64_t rows, std::int64_t columns,
                    const Body& body) {
  if (columns <= short_row) {
    for_row_groups<vector_registers / 2>(label, space, rows, body);
  } else {
    for_row_groups<4>(label, space, rows, body);
  }
}

// body(first, count) for blocks of rows, one for each thread. A row's result must not depend on where its block begins.
template <class Body>
void for_row_blocks(const std::string& label, const ExecutionSpace& space, std::int64_t rows, const Body& body) {
  const std::int64_t threads = space.concurrency(), height = (rows + threads - 1) / threads;
  if (rows == 0) return;
  Kokkos::parallel_for(label, RowRange(space, 0, (rows + height - 1) / height), [=](std::int64_t block) {
    const std::int64_t first = block * height;
    body(first, first + height < rows ? height : rows - first);
  });
}

// How far ahead a term below fetches its row: columns of a few packs change the page every few rows, which processors do not
// foresee.
inline constexpr int rows_ahead = 16;

// Adds to targets[s][c] the sums over the rows of what term(lanes, row, c, sums) adds to sums[s]: in blocks of rows, to keep
// rounding errors of long sums small.
template <class C, int Sums, int Packs, class Lanes, class Term>
inline void add_row_sums(const Lanes& lanes, std::int64_t rows, std::int64_t column, const Term& term,
                         C* const (&targets)[Sums]) {
  constexpr std::int64_t block = 64;
  Pack<C> totals[Packs][Sums] = {};
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t end = first + block < rows ? first + block : rows;
    Pack<C> partial[Packs][Sums] = {};
    for (std::int64_t row = first; row < end; ++row) {
      for (int p = 0; p < Packs; ++p) term(lanes, row, column + p * pack_size<C>, partial[p]);
    }
    for (int p = 0; p < Packs; ++p) {
      for (int s = 0; s < Sums; ++s) totals[p][s] += partial[p][s];
    }
  }
  for (int p = 0; p < Packs; ++p) {
    for (int s = 0; s < Sums; ++s) {
      C* const target = targets[s] + column + p * pack_size<C>;
      lanes.store(target, lanes.load(target) + totals[p][s]);
    }
  }
}

// The same for the columns first .. first + width - 1 of a group of for_column_groups.
template <class C, int Sums, class Term>
inline void add_group_sums(std::int64_t rows, std::int64_t first, std::int64_t width, const Term& term,
                           C* const (&targets)[Sums]) {
  // As many packs side by side as fill half the registers with sums.
  constexpr int fitting = vector_registers / 2 / Sums, whole = column_group / pack_size<C>,
                packs = fitting < whole ? fitting : whole;
  if (width == column_group) {
    for (int p = 0; p < whole; p += packs) {
      add_row_sums<C, Sums, packs>(WholePack{}, rows, first + p * pack_size<C>, term, targets);
    }
  } else {
    each_pack<C>(first, first + width,
                 [&](const auto& lanes, std::int64_t c) { add_row_sums<C, Sums, 1>(lanes, rows, c, term, targets); });
  }
}

}  // namespace minipipe::core
