#include "core/kernels/bias.hpp"
#include "core/kernels/dropout.hpp"
#include "core/kernels/gelu.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

template <class T>
class Fused : public ::testing::Test {};
TYPED_TEST_SUITE(Fused, Scalars);

TYPED_TEST(Fused, BiasAndGeluAreThoseOfTwoKernels) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<int, int>{1, 1}, {5, 33}, {7, 128}}) {
    const Numbers x = random_numbers(rows * columns, 1, -3, 3), b = random_numbers(columns, 2);
    const Array<T> bias(b), apart(x), apart_out(x.size()), together(x), together_out(x.size());
    bias_add<T>({}, apart.matrix(rows, columns), bias.vector());
    gelu_forward<T>({}, apart_out.vector(), apart.vector());
    bias_gelu_forward<T>({}, together_out.matrix(rows, columns), together.matrix(rows, columns), bias.vector());
    EXPECT_EQ(together.get(), apart.get());
    EXPECT_EQ(together_out.get(), apart_out.get());
    const double first = x[0] + b[0];
    const double gelu = first / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (first + 0.044715 * first * first * first)));
    EXPECT_NEAR(together_out.get()[0], gelu, 20 * rounding<T>);
  }
}

TYPED_TEST(Fused, DropoutAndResidualAreThoseOfTwoKernels) {
  using T = TypeParam;
  for (const double probability : {0.0, 0.3}) {
    for (const std::size_t count : {1, 6, 5003}) {
      const Dropout options{probability, 3, 4, 5};
      const Numbers x = random_numbers(count, 1), r = random_numbers(count, 2);
      const Array<T> values(x), residual(r), dropped(count);
      dropout<T>({}, dropped.vector(), values.vector(), options);
      Numbers expected = dropped.get();
      for (std::size_t i = 0; i < count; ++i) expected[i] += r[i];
      dropout_residual_add<T>({}, values.vector(), residual.vector(), options);
      expect_near(values.get(), expected, 4 * rounding<T>);
      EXPECT_EQ(residual.get(), r);
    }
  }
}

TYPED_TEST(Fused, RefuseArraysThatLieOnEachOther) {
  using T = TypeParam;
  const Array<T> a(Numbers(8)), bias(Numbers(4));
  EXPECT_THROW(bias_gelu_forward<T>({}, a.matrix(2, 4), a.matrix(2, 4), bias.vector()), RunError);
  EXPECT_THROW(dropout_residual_add<T>({}, a.vector(), a.vector(), {}), RunError);
}

}  // namespace minipipe::core::testing
