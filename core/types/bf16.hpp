#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstring>

namespace minipipe::core {

// The upper half of a float: 8 exponent bits, 7 stored bits of the fraction. Arithmetic is in float; storing rounds to nearest,
// ties to even (a relative error of at most 2^-8). Not a number stays not a number, infinities stay. It lives in memory and in
// messages only; files hold floats.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  KOKKOS_INLINE_FUNCTION bf16(float value) : bits(rounded(value)) {}

  KOKKOS_INLINE_FUNCTION operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    return __uint_as_float(wide);
#else
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
#endif
  }

 private:
  KOKKOS_INLINE_FUNCTION static std::uint16_t rounded(float value) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    const std::uint32_t wide = __float_as_uint(value);
#else
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
#endif
    const std::uint32_t nearest = (wide + 0x7fffU + (wide >> 16 & 1U)) >> 16;
    const std::uint32_t quiet = wide >> 16 | 0x40U;
    return static_cast<std::uint16_t>((wide & 0x7fffffffU) > 0x7f800000U ? quiet : nearest);
  }
};

}  // namespace minipipe::core
