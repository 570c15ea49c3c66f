// The kernels of state-space layers on values stored as bf16, against the same kernels in double.
#include "core/kernels/causal_conv.hpp"
#include "core/kernels/selective_scan.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

namespace minipipe::core::testing {

TEST(Bf16Kernels, CausalConvAndItsGradients) {
  constexpr int rows = 78, columns = 70, taps = 4;
  const Numbers x = random_bf16(rows * columns, 1, -2, 2), dy = random_bf16(rows * columns, 2);
  const Numbers weight = random_bf16(columns * taps, 3), bias = random_numbers(columns, 4);
  const auto run = [&]<class T>(T) {
    using C = Compute<T>;
    const Array<T> input(x), w(weight), dout(dy), y(rows * columns), du(rows * columns), dx(rows * columns);
    const Array<C> b(bias), dw(weight), db(bias);
    const auto matrix = [=](const auto& array) { return array.matrix(rows, columns); };
    const Columns<const T> from = columns_of<const T>(matrix(input));
    const ConvShape shape{2, rows / 2};
    causal_conv_forward<T>({}, matrix(y), from, w.matrix(columns, taps), b.vector(), shape);
    causal_conv_backward_input<T>({}, columns_of(matrix(dx)), matrix(du), matrix(dout), from, w.matrix(columns, taps),
                                  b.vector(), shape);
    causal_conv_backward_parameters<T>({}, dw.matrix(columns, taps), db.vector(), matrix(du), from, shape);
    return std::array<Numbers, 5>{y.get(), du.get(), dx.get(), dw.get(), db.get()};
  };
  const auto narrow = run(bf16()), wide = run(double());
  for (int i = 0; i < 2; ++i) expect_rounded(narrow[i], wide[i], 200 * rounding<float>);
  // Sums of values below 1.1 that were rounded, times factors below 1 and 2.
  expect_rounded(narrow[2], wide[2], 1.1 * taps * bf16_rounding);
  expect_near(narrow[3], wide[3], 2.2 * std::sqrt(rows) * bf16_rounding);
  expect_near(narrow[4], wide[4], 1.1 * std::sqrt(rows) * bf16_rounding);
}

// All sums are in float, so that every result is rounded once; x, b and c are columns of one array.
TEST(Bf16Kernels, SelectiveScanAndItsGradients) {
  const ScanShape z{2, scan_chunk + 7, 4, 5, 2, 6};
  constexpr int inner = 20, shared = 12, width = inner + 2 * shared;
  const std::int64_t rows = z.batch * z.sequence;
  const Numbers xbc = random_bf16(rows * width, 1), dt = random_bf16(rows * z.heads, 2, -3, 1);
  const Numbers dy = random_bf16(rows * inner, 3), a_log = random_numbers(z.heads, 4), d = random_numbers(z.heads, 5);
  const Numbers dt_bias = random_numbers(z.heads, 6);
  const auto run = [&]<class T>(T) {
    using C = Compute<T>;
    const Array<T> input(xbc), steps(dt), dout(dy), y(rows * inner), dinput(rows * width), dsteps(rows * z.heads);
    const Array<C> a(a_log), skip(d), bias(dt_bias), states(scan_states(z)), workspace(scan_workspace(z)), sums(scan_sums(z));
    const Array<C> da(a_log), dskip(d), dbias(dt_bias);
    const auto parts = [&](const Array<T>& values, const Array<T>& raw) {
      const Matrix<T> all = values.matrix(rows, width);
      return ScanInputs<T>{columns_of(all, 0, inner), columns_of(raw.matrix(rows, z.heads)), columns_of(all, inner, shared),
                           columns_of(all, inner + shared, shared)};
    };
    const ScanParameters<C> parameters{a.vector(), skip.vector(), bias.vector()};
    selective_scan_forward<T>({}, y.matrix(rows, inner), states.vector(), parts(input, steps), parameters, z);
    selective_scan_backward_input<T>({}, parts(dinput, dsteps), sums.vector(), dout.matrix(rows, inner), parts(input, steps),
                                     parameters, states.vector(), workspace.vector(), z);
    selective_scan_backward_parameters<C>({}, {da.vector(), dskip.vector(), dbias.vector()}, sums.vector(), z);
    return std::array<Numbers, 6>{y.get(), dinput.get(), dsteps.get(), da.get(), dskip.get(), dbias.get()};
  };
  const auto narrow = run(bf16()), wide = run(double());
  // As in the test of float: sums of S terms that a step's rounding passes through at most eight times.
  const double error = (8 * rounding<float> + 2e-7) * 8 * static_cast<double>((z.state + 4) * z.head_size * 2);
  for (int i = 0; i < 3; ++i) expect_rounded(narrow[i], wide[i], error);
  for (int i = 3; i < 6; ++i) expect_near(narrow[i], wide[i], error * std::sqrt(rows));
}

}  // namespace minipipe::core::testing
