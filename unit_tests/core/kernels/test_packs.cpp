#include <cmath>
#include <limits>

#include "core/kernels/gelu.hpp"
#include "core/kernels/packs.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

TEST(Packs, PowerOfTwoIsWithinItsErrorAndKeepsItsLimits) {
  for (float x = -124.9f; x < 125; x += 0.0371f) {
    const Pack<float> powers = power_of_two(Pack<float>{} + x);
    const double exact = std::exp2(static_cast<double>(x));
    ASSERT_NEAR(powers[3] / exact, 1.0, 2e-7) << x;
    ASSERT_NEAR(power_of_two(x) / exact, 1.0, 2e-7) << x;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const Pack<float> x = {0, -200, 200, -infinity, infinity, std::nanf(""), -std::nanf(""), lowest_value<float>, 1, -1};
  const Pack<float> powers = power_of_two(x);
  EXPECT_EQ(powers[0], 1.0f);
  for (const int l : {1, 3, 7}) EXPECT_EQ(powers[l], std::ldexp(1.0f, -125)) << l;
  for (const int l : {2, 4}) EXPECT_EQ(powers[l], std::ldexp(1.0f, 125)) << l;
  for (const int l : {5, 6}) EXPECT_TRUE(std::isnan(powers[l])) << l;
}

// The value of an element does not depend on where it lies: packs and the rest of an array give the same bits.
TEST(Packs, GeluIsTheSameInWholePacksAndParts) {
  Numbers numbers;
  for (int i = 0; i < 37; ++i) numbers.push_back(-6 + 0.37 * i);
  const Array<float> input(numbers), out(numbers.size());
  gelu_forward<float>({}, out.vector(), input.vector());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Array<float> one(Numbers{numbers[i]}), result(1);
    gelu_forward<float>({}, result.vector(), one.vector());
    EXPECT_EQ(result.exact()[0], out.exact()[i]) << i;
  }
}

}  // namespace minipipe::core::testing
