// Kernels of bf16 against the same kernels in double (which have tests of their own against loops and differences) on the same
// input: values that bf16 holds exactly. What is computed in float and stored once differs by one rounding of bf16.
#include <optional>

#include "core/kernels/attention.hpp"
#include "core/kernels/bias.hpp"
#include "core/kernels/columns.hpp"
#include "core/kernels/cross_entropy.hpp"
#include "core/kernels/dropout.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/embedding.hpp"
#include "core/kernels/gelu.hpp"
#include "core/kernels/layer_norm.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/kernels/rotary.hpp"
#include "core/kernels/swiglu.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

namespace minipipe::core::testing {

namespace {

constexpr int rows = 70, columns = 37;
constexpr std::size_t size = rows * columns;
// Sums of `terms` products of magnitude below 16 in float.
double float_sums(double terms) { return rounding<float> * 16 * terms; }

template <class T>
struct Norms {
  Numbers out, dx, added, dgamma, dbeta;
};

template <class T>
Norms<T> layer_norm(const Numbers& x, const Numbers& dy, const Numbers& gamma, const Numbers& beta, const Numbers& before) {
  using C = Compute<T>;
  const Array<T> input(x), gradient(dy), out(size), dx(size), added(before);
  const Array<C> g(gamma), b(beta), mean(rows), rstd(rows), dgamma(gamma), dbeta(beta);
  layer_norm_forward<T>({}, out.matrix(rows, columns), mean.vector(), rstd.vector(), input.matrix(rows, columns), g.vector(),
                        b.vector(), 1e-5);
  for (const auto* to : {&dx, &added}) {
    layer_norm_backward_input<T>({}, to->matrix(rows, columns), gradient.matrix(rows, columns), input.matrix(rows, columns),
                                 mean.vector(), rstd.vector(), g.vector(), to == &added);
  }
  layer_norm_backward_parameters<T>({}, dgamma.vector(), dbeta.vector(), gradient.matrix(rows, columns),
                                    input.matrix(rows, columns), mean.vector(), rstd.vector());
  return {out.get(), dx.get(), added.get(), dgamma.get(), dbeta.get()};
}

template <class T>
Norms<T> rms_norm(const Numbers& x, const Numbers& dy, const Numbers& gamma, const Numbers&, const Numbers& before) {
  using C = Compute<T>;
  const Array<T> input(x), gradient(dy), out(size), dx(size), added(before);
  const Array<C> g(gamma), rstd(rows), dgamma(gamma);
  rms_norm_forward<T>({}, out.matrix(rows, columns), rstd.vector(), input.matrix(rows, columns), g.vector(), 1e-5);
  for (const auto* to : {&dx, &added}) {
    rms_norm_backward_input<T>({}, to->matrix(rows, columns), gradient.matrix(rows, columns), input.matrix(rows, columns),
                               rstd.vector(), g.vector(), to == &added);
  }
  rms_norm_backward_parameters<T>({}, dgamma.vector(), gradient.matrix(rows, columns), input.matrix(rows, columns),
                                  rstd.vector());
  return {out.get(), dx.get(), added.get(), dgamma.get(), {}};
}

template <class Narrow, class Wide>
void compare_norms(const Narrow& narrow, const Wide& wide) {
  const Numbers x = random_bf16(size, 1, -2, 3), dy = random_bf16(size, 2), gamma = random_numbers(columns, 3, 0.5, 1.5);
  const Numbers beta = random_numbers(columns, 4), before = random_bf16(size, 5);
  const auto actual = narrow(x, dy, gamma, beta, before);
  const auto exact = wide(x, dy, gamma, beta, before);
  expect_rounded(actual.out, exact.out, float_sums(columns));
  expect_rounded(actual.dx, exact.dx, float_sums(columns));
  expect_rounded(actual.added, exact.added, float_sums(columns));
  // Never stored in bf16.
  expect_near(actual.dgamma, exact.dgamma, float_sums(rows + columns));
  expect_near(actual.dbeta, exact.dbeta, float_sums(rows));
}

}  // namespace

TEST(Bf16Kernels, LayerNorm) { compare_norms(layer_norm<bf16>, layer_norm<double>); }
TEST(Bf16Kernels, RmsNorm) { compare_norms(rms_norm<bf16>, rms_norm<double>); }

TEST(Bf16Kernels, BiasAndItsGradient) {
  const Numbers x = random_bf16(size, 1), b = random_numbers(columns, 2), before = random_numbers(columns, 3);
  const Array<bf16> values(x);
  const Array<float> bias(b), gradient(before);
  bias_gradient<bf16>({}, gradient.vector(), values.matrix(rows, columns));
  bias_add<bf16>({}, values.matrix(rows, columns), bias.vector());
  Numbers sums = before, added = x;
  for (std::size_t i = 0; i < size; ++i) {
    sums[i % columns] += x[i];
    added[i] += b[i % columns];
  }
  expect_rounded(values.get(), added, rounding<float> * 2);
  expect_near(gradient.get(), sums, float_sums(rows));
}

TEST(Bf16Kernels, GeluAndItsGradient) {
  const Numbers x = random_bf16(size, 1, -5, 5), dy = random_bf16(size, 2), b = random_numbers(columns, 3);
  const Array<bf16> input(x), out(size), gradient(dy), together(x), together_out(size);
  const Array<double> exact_input(x), exact_out(size), exact_gradient(dy);
  const Array<float> bias(b);
  gelu_forward<bf16>({}, out.vector(), input.vector());
  gelu_forward<double>({}, exact_out.vector(), exact_input.vector());
  // As in the test of float: the argument of the exponential is up to 25.
  expect_rounded(out.get(), exact_out.get(), 5 * 120 * rounding<float>);
  gelu_backward<bf16>({}, gradient.vector(), gradient.vector(), input.vector());
  gelu_backward<double>({}, exact_gradient.vector(), exact_gradient.vector(), exact_input.vector());
  expect_rounded(gradient.get(), exact_gradient.get(), 30 * 120 * rounding<float>);
  // The fused form is that of two kernels to the last bit, the sum with the bias being stored between them.
  bias_gelu_forward<bf16>({}, together_out.matrix(rows, columns), together.matrix(rows, columns), bias.vector());
  bias_add<bf16>({}, input.matrix(rows, columns), bias.vector());
  gelu_forward<bf16>({}, out.vector(), input.vector());
  EXPECT_EQ(together.get(), input.get());
  EXPECT_EQ(together_out.get(), out.get());
}

TEST(Bf16Kernels, SwigluAndItsGradient) {
  const Numbers gate = random_bf16(size, 1, -5, 5), up = random_bf16(size, 2), dy = random_bf16(size, 3);
  const auto run = [&]<class T>(T) {
    const Array<T> g(gate), u(up), gradient(dy), out(size), dg(size), du(size);
    swiglu_forward<T>({}, out.vector(), g.vector(), u.vector());
    swiglu_backward<T>({}, dg.vector(), du.vector(), gradient.vector(), g.vector(), u.vector());
    return std::array<Numbers, 3>{out.get(), dg.get(), du.get()};
  };
  const auto narrow = run(bf16()), wide = run(double());
  for (int i = 0; i < 3; ++i) expect_rounded(narrow[i], wide[i], 200 * rounding<float>);
}

TEST(Bf16Kernels, ElementwiseAndColumns) {
  const Numbers a = random_bf16(size, 1), b = random_bf16(size, 2), wide = random_numbers(size, 3, -9, 9);
  const Array<bf16> left(a), right(b), sum(size), narrowed(size), part(Numbers(rows * 8, 0.0));
  const Array<float> values(wide), widened(size);
  residual_add<bf16>({}, sum.vector(), left.vector(), right.vector());
  Numbers expected = a;
  for (std::size_t i = 0; i < size; ++i) expected[i] += b[i];
  expect_rounded(sum.get(), expected, rounding<float> * 2);
  convert<bf16, float>({}, narrowed.vector(), values.vector());
  expect_rounded(narrowed.get(), wide, 0);
  convert<float, bf16>({}, widened.vector(), left.vector());
  EXPECT_EQ(widened.get(), a);
  copy_columns<bf16>({}, part.matrix(rows, 8), 3, left.matrix(rows, columns), 10, 5);
  const Numbers copied = part.get();
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < 8; ++c) EXPECT_EQ(copied[r * 8 + c], c < 3 ? 0 : a[r * columns + 7 + c]);
  }
}

TEST(Bf16Kernels, DropoutHasTheMaskOfFloat) {
  const Dropout options{0.3, 3, 4, 5};
  const Numbers x = random_bf16(size, 1), r = random_bf16(size, 2);
  const auto run = [&]<class T>(T) {
    const Array<T> input(x), residual(r), out(size);
    dropout<T>({}, out.vector(), input.vector(), options);
    dropout_residual_add<T>({}, input.vector(), residual.vector(), options);
    return std::array<Numbers, 2>{out.get(), input.get()};
  };
  const auto narrow = run(bf16()), wide = run(double());
  for (int i = 0; i < 2; ++i) expect_rounded(narrow[i], wide[i], 4 * rounding<float>);
  EXPECT_GT(std::count(narrow[0].begin(), narrow[0].end(), 0.0), static_cast<std::ptrdiff_t>(size / 5));
}

TEST(Bf16Kernels, EmbeddingAndItsGradient) {
  const int batch = 2, sequence = 35, vocab = 11;
  std::vector<std::int32_t> ids(rows);
  for (int i = 0; i < rows; ++i) ids[i] = i * 7 % vocab;
  const auto tokens = integers(ids);
  const Matrix<std::int32_t> token_matrix(tokens.data(), batch, sequence);
  const Numbers table = random_bf16(vocab * columns, 1), positions = random_bf16(sequence * columns, 2),
                dy = random_bf16(size, 3);
  const auto run = [&]<class T>(T) {
    using C = Compute<T>;
    const Array<T> t(table), p(positions), out(size), gradient(dy);
    const Array<C> dt(table), dp(positions);
    embedding_forward<T>({}, out.matrix(rows, columns), token_matrix, t.matrix(vocab, columns), p.matrix(sequence, columns));
    embedding_backward<T>({}, dt.matrix(vocab, columns), dp.matrix(sequence, columns), gradient.matrix(rows, columns),
                          token_matrix);
    return std::array<Numbers, 3>{out.get(), dt.get(), dp.get()};
  };
  const auto narrow = run(bf16()), wide = run(double());
  expect_rounded(narrow[0], wide[0], rounding<float> * 2);
  expect_near(narrow[1], wide[1], float_sums(rows));
  expect_near(narrow[2], wide[2], float_sums(batch));
}

TEST(Bf16Kernels, RotaryPositions) {
  const int depth = 6, heads = 3, sequence = 35;
  const OwnedMatrix<double> table("table", sequence, depth);
  rotary_table({}, table, 1e4);
  const Numbers x = random_bf16(rows * heads * depth, 1);
  for (const bool inverse : {false, true}) {
    const auto run = [&]<class T>(T) {
      const Array<T> values(x);
      rotary_apply<T>({}, values.matrix(rows, heads * depth), table, sequence, inverse);
      return values.get();
    };
    expect_rounded(run(bf16()), run(double()), 8 * rounding<float>);
  }
}

// Wider and narrower rows than before, because a thread keeps memory of a row.
TEST(Bf16Kernels, CrossEntropyAndItsGradient) {
  for (const int vocab : {257, 61, 1000}) {
    SCOPED_TRACE(vocab);
    const Numbers x = random_bf16(rows * vocab, 1, -8, 8);
    std::vector<std::int32_t> ids(rows);
    for (int r = 0; r < rows; ++r) ids[r] = r == 3 ? -1 : r * 31 % vocab;
    const auto targets = integers(ids);
    const auto run = [&]<class T>(T) {
      using C = Compute<T>;
      const Array<T> logits(x);
      const Array<C> losses(rows), again(rows);
      cross_entropy_loss<T>({}, losses.vector(), logits.matrix(rows, vocab), targets);
      EXPECT_EQ(logits.get(), x) << "the loss-only form leaves the logits alone";
      cross_entropy_gradient<T>({}, again.vector(), logits.matrix(rows, vocab), targets, C(0.125));
      return std::array<Numbers, 3>{losses.get(), again.get(), logits.get()};
    };
    const auto narrow = run(bf16()), wide = run(double());
    // Losses are those of float; so is the gradient until it is stored: once, not once more as exponentials.
    const double tolerance = rounding<float> * (vocab + 60);
    expect_near(narrow[0], wide[0], tolerance);
    expect_near(narrow[1], wide[1], tolerance);
    expect_rounded(narrow[2], wide[2], tolerance);
  }
}

namespace {

struct AttentionCase {
  int batch, sequence, heads, groups, depth;
  double dropout;
};

template <class T>
struct AttentionResult {
  Numbers out, logsumexp, dq, dk, dv;
};

// The backward takes `out` and `logsumexp` from the forward, or those that are given.
template <class T>
AttentionResult<T> attend(const AttentionCase& c, const Numbers& q, const Numbers& kv, const Numbers& dout,
                          const std::optional<AttentionResult<bf16>>& given = {}) {
  const int n = c.batch * c.sequence, width = c.heads * c.depth, shared = c.groups * c.depth;
  const Dropout options{c.dropout, 5, 2, 9};
  const AttentionShape shape{c.batch, c.sequence, c.heads, c.groups};
  const Array<T> queries(q), keys(kv), values(kv), gradient(dout), out(n * width), dq(n * width), dk(n * shared),
      dv(n * shared);
  const Array<Compute<T>> logsumexp(n * c.heads), sums(n * width);
  const auto qkv = [&](const Array<T>& a, const Array<T>& b, const Array<T>& d) {
    return Qkv<T>{columns_of<T>(a.matrix(n, width)), columns_of<T>(b.matrix(n, shared)), columns_of<T>(d.matrix(n, shared))};
  };
  attention_forward<T>({}, out.matrix(n, width), logsumexp.vector(), qkv(queries, keys, values), shape, options);
  const Array<T> used_out(given ? given->out : out.get());
  const Array<Compute<T>> used_sums(given ? given->logsumexp : logsumexp.get());
  attention_backward<T>({}, qkv(dq, dk, dv), gradient.matrix(n, width), qkv(queries, keys, values), used_out.matrix(n, width),
                        used_sums.vector(), shape, options, sums.matrix(n, width));
  return {out.get(), logsumexp.get(), dq.get(), dk.get(), dv.get()};
}

}  // namespace

TEST(Bf16Kernels, AttentionAndItsGradient) {
  for (const AttentionCase& c : {AttentionCase{1, 1, 1, 1, 1, 0},
                                 {2, 7, 3, 3, 5, 0.25},
                                 {1, 70, 2, 1, 4, 0},
                                 {1, 200, 2, 2, 16, 0.1},
                                 {2, 130, 4, 2, 8, 0}}) {
    SCOPED_TRACE(::testing::Message() << "T " << c.sequence << " heads " << c.heads << " depth " << c.depth);
    const int n = c.batch * c.sequence;
    const Numbers q = random_bf16(n * c.heads * c.depth, 1), kv = random_bf16(n * c.groups * c.depth, 2),
                  dout = random_bf16(n * c.heads * c.depth, 3);
    const AttentionResult<bf16> narrow = attend<bf16>(c, q, kv, dout);
    const AttentionResult<double> wide = attend<double>(c, q, kv, dout, narrow);
    // The bounds of the tests of float (test_attention.cpp), then one rounding.
    const double score = rounding<float> * (c.depth + 4) * std::sqrt(c.depth);
    const double relative = 2 * score + rounding<float> * (c.sequence + c.depth + 16);
    const double keep = 1 - c.dropout;
    expect_rounded(narrow.out, wide.out, 2 / keep * relative);
    expect_near(narrow.logsumexp, wide.logsumexp, relative, 2 * rounding<float>);
    const double probabilities = static_cast<double>(c.sequence) * c.heads / c.groups;
    const double absolute = relative * 2 * std::sqrt(c.depth) * probabilities / keep;
    expect_rounded(narrow.dq, wide.dq, absolute);
    expect_rounded(narrow.dk, wide.dk, absolute);
    expect_rounded(narrow.dv, wide.dv, absolute);
  }
}

TEST(Bf16Kernels, AttentionNeedsRoomForSums) {
  const Array<bf16> values(Numbers(12, 1.0)), gradient(12), out(Numbers(4, 1.0));
  const Array<float> logsumexp(Numbers(1, 0.0));
  EXPECT_THROW(attention_backward<bf16>({}, split_qkv<bf16>(gradient.matrix(1, 12)), out.matrix(1, 4),
                                        split_qkv<bf16>(values.matrix(1, 12)), out.matrix(1, 4), logsumexp.vector(), {1, 1, 1}),
               RunError);
}

}  // namespace minipipe::core::testing
