#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/types/types.hpp"

namespace minipipe::core::testing {

using Numbers = std::vector<double>;

// Values that float holds exactly: float and double kernels get the same input.
inline Numbers random_numbers(std::size_t count, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(static_cast<float>(low), static_cast<float>(high));
  Numbers values(count);
  for (double& value : values) {
    value = uniform(engine);
  }
  return values;
}

// What an array holds once all kernels are done.
template <class View>
std::vector<typename View::non_const_value_type> read(const View& view) {
  Kokkos::fence();
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  Kokkos::deep_copy(host, view);
  return {host.data(), host.data() + host.size()};
}

// An array where kernels run, filled from and read back to the host.
template <class T>
class Array {
 public:
  // Not a number everywhere: what a kernel leaves out shows.
  explicit Array(std::size_t count) : Array(Numbers(count, std::numeric_limits<double>::quiet_NaN())) {}
  explicit Array(const Numbers& values) : view_("array", values.size()) { set(values); }

  void set(const Numbers& values) {
    const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      host(i) = static_cast<T>(values[i]);
    }
    Kokkos::deep_copy(view_, host);
  }
  std::vector<T> exact() const { return read(view_); }
  Numbers get() const {
    const std::vector<T> values = exact();
    return Numbers(values.begin(), values.end());
  }
  Vector<T> vector() const { return view_; }
  Matrix<T> matrix(std::int64_t rows, std::int64_t columns) const { return slice_matrix<T>(view_, 0, rows, columns); }

 private:
  OwnedVector<T> view_;
};

inline OwnedVector<std::int32_t> integers(const std::vector<std::int32_t>& values) {
  OwnedVector<std::int32_t> view("integers", values.size());
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), view);
  std::copy(values.begin(), values.end(), host.data());
  Kokkos::deep_copy(view, host);
  return view;
}

// Half a unit in the last place, relative.
template <class T>
inline constexpr double rounding = std::numeric_limits<T>::epsilon() / 2;

inline void expect_near(const Numbers& actual, const Numbers& expected, double absolute, double relative = 0) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], absolute + relative * std::abs(expected[i])) << "element " << i;
  }
}

// Central differences of a scalar function, by entry 0, n, 2 n, ... Step 1e-5: truncation about 1e-10 f''', rounding about
// 1e-11 |f|.
inline Numbers differences(Numbers at, const std::function<double(const Numbers&)>& function, std::size_t n = 1) {
  constexpr double step = 1e-5;
  Numbers result;
  for (std::size_t i = 0; i < at.size(); i += n) {
    const double value = at[i];
    at[i] = value + step;
    const double above = function(at);
    at[i] = value - step;
    const double below = function(at);
    at[i] = value;
    result.push_back((above - below) / (2 * step));
  }
  return result;
}

inline Numbers every_nth(const Numbers& values, std::size_t n) {
  Numbers result;
  for (std::size_t i = 0; i < values.size(); i += n) result.push_back(values[i]);
  return result;
}

inline double dot(const Numbers& a, const Numbers& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    total += a[i] * b[i];
  }
  return total;
}

using Scalars = ::testing::Types<float, double>;

}  // namespace minipipe::core::testing
