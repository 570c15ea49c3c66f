#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "core/types/types.hpp"

namespace minipipe::core {

// a b + c. Rounded once where the target has the instruction, so that it does not depend on what the compiler contracts.
KOKKOS_INLINE_FUNCTION float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return ::fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
KOKKOS_INLINE_FUNCTION double multiply_add(double a, double b, double c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  return ::fma(a, b, c);
#else
  return a * b + c;
#endif
}

// Stands for minus infinity where differences are formed.
template <class T>
inline constexpr T lowest_value = std::numeric_limits<T>::lowest();

KOKKOS_INLINE_FUNCTION float square_root(float x) { return ::sqrtf(x); }
KOKKOS_INLINE_FUNCTION double square_root(double x) { return ::sqrt(x); }
KOKKOS_INLINE_FUNCTION float logarithm(float x) { return ::logf(x); }
KOKKOS_INLINE_FUNCTION double logarithm(double x) { return ::log(x); }

KOKKOS_INLINE_FUNCTION double exponential(double x) { return ::exp(x); }

// exp in float without branches, so that loops over it become vector code: x = n ln 2 + r with |r| <= ln(2)/2, a Taylor
// polynomial of degree 7 in r (truncation below 6e-9), and 2^n put together from its bits. Relative error below 2e-7.
// Arguments are clamped to [-87.3, 88.0]: below, about 1e-38 is returned. Not a number stays not a number.
KOKKOS_INLINE_FUNCTION float exponential(float x) {
  constexpr float log2_e = 1.44269504F;
  constexpr float ln2_high = 0.693359375F;  // 10 bits: its product with n is exact
  constexpr float ln2_low = -2.12194440e-4F;
  constexpr float rounder = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = x < -87.3F ? -87.3F : x;
  x = x > 88.0F ? 88.0F : x;
  const float shifted = x * log2_e + rounder;
  const float n = shifted - rounder;
  const float r = multiply_add(-n, ln2_low, multiply_add(-n, ln2_high, x));
  float p = 1.0F / 5040;
  p = multiply_add(p, r, 1.0F / 720);
  p = multiply_add(p, r, 1.0F / 120);
  p = multiply_add(p, r, 1.0F / 24);
  p = multiply_add(p, r, 1.0F / 6);
  p = multiply_add(p, r, 0.5F);
  p = multiply_add(p, r, 1.0F);
  p = multiply_add(p, r, 1.0F);
  std::uint32_t bits = 0;
  float power = 0;
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
  bits = __float_as_uint(shifted);
  power = __uint_as_float((bits << 23) + 0x3f800000U);
#else
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000U;
  std::memcpy(&power, &bits, sizeof power);
#endif
  return p * power;
}

}  // namespace minipipe::core
