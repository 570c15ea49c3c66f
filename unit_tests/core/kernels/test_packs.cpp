#include <cmath>
#include <limits>

#include "core/kernels/gelu.hpp"
#include "core/kernels/pack_exponentials.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

constexpr int lanes_of_pack = pack_size<float>;

// x in lane 1, -1 in the others.
Pack<float> among_others(float x) {
  Pack<float> pack = Pack<float>{} - 1.0f;
  pack[1] = x;
  return pack;
}

TEST(Packs, PowerOfTwoIsWithinItsErrorAndKeepsItsLimits) {
  for (float x = -124.9f; x < 125; x += 0.0371f) {
    const Pack<float> powers = power_of_two(Pack<float>{} + x);
    const double exact = std::exp2(static_cast<double>(x));
    ASSERT_NEAR(powers[3] / exact, 1.0, 2e-7) << x;
    ASSERT_NEAR(power_of_two(x) / exact, 1.0, 2e-7) << x;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const float smallest = std::ldexp(1.0f, -125), largest = std::ldexp(1.0f, 125);
  for (const auto& [x, power] : {std::pair{0.0f, 1.0f},
                                 {-200.0f, smallest},
                                 {200.0f, largest},
                                 {-infinity, smallest},
                                 {infinity, largest},
                                 {lowest_value<float>, smallest},
                                 {1.0f, 2.0f},
                                 {-1.0f, 0.5f}}) {
    EXPECT_EQ(power_of_two(among_others(x))[1], power) << x;
  }
  for (const float x : {std::nanf(""), -std::nanf("")}) EXPECT_TRUE(std::isnan(power_of_two(among_others(x))[1])) << x;
}

// 1 at 0, the smallest power for all that is far below, not a number of none.
template <class Function>
void expect_clamped_from_below(const Function& exponential_of) {
  EXPECT_EQ(exponential_of(among_others(0))[1], 1.0f);
  for (const float x : {-100.0f, -std::numeric_limits<float>::infinity(), lowest_value<float>}) {
    EXPECT_NEAR(exponential_of(among_others(x))[1], 2.45e-38, 1e-39) << x;
  }
  EXPECT_TRUE(std::isnan(exponential_of(among_others(std::nanf("")))[1]));
}

TEST(Packs, ExponentialIsWithinItsErrorAndClampedFromBelow) {
  for (float x = -86.5f; x < 86; x += 0.0237f) {
    ASSERT_NEAR(exponential(Pack<float>{} + x)[lanes_of_pack - 1] / std::exp(static_cast<double>(x)), 1.0, 2e-7) << x;
  }
  expect_clamped_from_below([](Pack<float> x) { return exponential(x); });
}

TEST(Packs, TermsOfASumOfExponentialsAreWithinTheirError) {
  for (float x = -86.5f; x <= 0; x += 0.0237f) {
    const double error = exponential_term(Pack<float>{} + x)[lanes_of_pack - 1] / std::exp(static_cast<double>(x)) - 1;
    ASSERT_LT(std::abs(error), 2e-7 - 2e-8 * x) << x;
  }
  expect_clamped_from_below([](Pack<float> x) { return exponential_term(x); });
}

TEST(Packs, ExponentialsOfSeveralPacksAreThoseOfOne) {
  Pack<float> whole[4], terms[4];
  for (int k = 0; k < 4; ++k) {
    for (int l = 0; l < lanes_of_pack; ++l) whole[k][l] = terms[k][l] = -0.37f * static_cast<float>(lanes_of_pack * k + l);
  }
  exponentials(whole);
  exponential_terms(terms);
  for (int k = 0; k < 4; ++k) {
    for (int l = 0; l < lanes_of_pack; ++l) {
      const Pack<float> x = Pack<float>{} - 0.37f * static_cast<float>(lanes_of_pack * k + l);
      EXPECT_EQ(whole[k][l], exponential(x)[l]) << k << " " << l;
      EXPECT_EQ(terms[k][l], exponential_term(x)[l]) << k << " " << l;
    }
  }
}

// Every element once, in the part of its pack, at the end and in between.
TEST(Packs, PartsCoverEveryElementOnce) {
  for (const int count : {0, 5, 16, 63, 64, 65, 100, 128}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
    Pack<float> sums[4] = {};
    each_pack_in_parts<float, 4>(0, count, [&](const auto& lanes, std::int64_t i, int part) {
      EXPECT_EQ(part, i / lanes_of_pack % 4) << count;
      sums[part] += lanes.load(values.data() + i);
    });
    EXPECT_EQ(sum_of_lanes(sums[0] + sums[1] + sums[2] + sums[3]), static_cast<float>(count * (count + 1) / 2)) << count;
  }
}

// Every lane counts once, wherever the largest one is.
TEST(Packs, LanesAreReduced) {
  Pack<float> x = {};
  Pack<double> y = {};
  for (int l = 0; l < lanes_of_pack; ++l) x[l] = std::ldexp(1.0f, l);
  for (int l = 0; l < pack_size<double>; ++l) y[l] = std::ldexp(1.0, l);
  EXPECT_EQ(sum_of_lanes(x), std::ldexp(1.0f, lanes_of_pack) - 1);
  EXPECT_EQ(sum_of_lanes(y), std::ldexp(1.0, pack_size<double>) - 1);
  EXPECT_EQ(largest_lane(y), std::ldexp(1.0, pack_size<double> - 1));
  for (int largest = 0; largest < lanes_of_pack; ++largest) {
    for (int l = 0; l < lanes_of_pack; ++l) x[l] = static_cast<float>((l - largest + lanes_of_pack - 1) % lanes_of_pack) - 40;
    EXPECT_EQ(largest_lane(x), static_cast<float>(lanes_of_pack - 41)) << largest;
  }
}

TEST(Packs, PartsLeaveOthersAlone) {
  for (int count = 1; count < lanes_of_pack; ++count) {
    std::vector<bf16> values(static_cast<std::size_t>(lanes_of_pack), bf16(3.0f));
    PartOfPack{count}.store(values.data(), Pack<float>{} + 1.0f);
    const Pack<float> part = PartOfPack{count}.or_else(PartOfPack{count}.load(values.data()), Pack<float>{} - 2.0f);
    for (int l = 0; l < lanes_of_pack; ++l) {
      EXPECT_EQ(static_cast<float>(values[static_cast<std::size_t>(l)]), l < count ? 1.0f : 3.0f) << count << " " << l;
      EXPECT_EQ(part[l], l < count ? 1.0f : -2.0f) << count << " " << l;
    }
  }
}

// Numbers of all sizes, ties, subnormal numbers and what is not a number, alone and beside each other.
TEST(Packs, RoundedToBf16AsOneElementIs) {
  std::vector<float> numbers;
  for (std::uint32_t high = 0; high < 0x10000; high += 0x7) {
    for (const std::uint32_t low : {0x0U, 0x1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const std::uint32_t bits = high << 16 | low;
      float x;
      std::memcpy(&x, &bits, sizeof x);
      numbers.push_back(x);
    }
  }
  numbers.resize(numbers.size() / lanes_of_pack * lanes_of_pack);
  for (std::size_t i = 0; i < numbers.size(); i += lanes_of_pack) {
    const Pack<float> x = load_pack(numbers.data() + i);
    const Halves rounded = round_pack(x);
    bf16 stored[lanes_of_pack];
    store_pack(stored, x);
    const Pack<float> read = load_pack(stored);
    for (int l = 0; l < lanes_of_pack; ++l) {
      const bf16 one(numbers[i + static_cast<std::size_t>(l)]);
      ASSERT_EQ(rounded[l], one.bits) << i << " " << l;
      ASSERT_EQ(stored[l].bits, one.bits) << i << " " << l;
      const float lane = read[l], wide = one;
      ASSERT_EQ(std::memcmp(&lane, &wide, sizeof lane), 0) << i << " " << l;
    }
  }
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
