#pragma once

#include "core/kernels/packs.hpp"

// How packs come from memory and go there. `Lanes` of a kernel's body is one of the three classes, which say what is loaded and
// stored at a place: a pack on the host, a part of one at the end of an array, one element on a device.
namespace minipipe::core {

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

}  // namespace minipipe::core
