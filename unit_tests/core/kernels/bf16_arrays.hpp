#pragma once

#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

// The largest relative error of one rounding to bf16, which has 8 significant bits.
inline constexpr double bf16_rounding = 0x1p-8;

// Random values that bf16 holds exactly: kernels of all types get the same input.
inline Numbers random_bf16(std::size_t count, unsigned seed, double low = -1, double high = 1) {
  return Array<bf16>(random_numbers(count, seed, low, high)).get();
}

// A result of bf16 kernels against that of the same kernels in double: computed in float with an error of `absolute`, then
// stored in bf16 once.
inline void expect_rounded(const Numbers& actual, const Numbers& exact, double absolute) {
  expect_near(actual, exact, absolute * (1 + bf16_rounding), bf16_rounding);
}

}  // namespace minipipe::core::testing
