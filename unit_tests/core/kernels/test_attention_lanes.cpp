#include <optional>
#include <tuple>

#include "core/kernels/attention_lanes.hpp"
#include "unit_tests/core/kernels/arrays.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

// On the host, attention in float and bf16 keeps its sums in vector registers; in double it is the portable kernel, which is
// compared with plain loops in test_attention.cpp and serves as the reference here.
namespace minipipe::core::testing {

namespace {

struct Shape {
  int batch, sequence, heads, groups, depth;
  double dropout = 0;

  int rows() const { return batch * sequence; }
  int width() const { return heads * depth; }
  int shared() const { return groups * depth; }
};

struct Values {
  Numbers out, logsumexp, dq, dk, dv;
};

struct Inputs {
  Numbers q, k, v, dout;
};

Inputs random_inputs(const Shape& c, double limit = 1) {
  const auto numbers = [&](int count, unsigned seed) {
    Numbers values = random_bf16(count, seed);  // exact in every type
    for (double& value : values) value *= limit;
    return values;
  };
  return {numbers(c.rows() * c.width(), 1), numbers(c.rows() * c.shared(), 2), numbers(c.rows() * c.shared(), 3),
          numbers(c.rows() * c.width(), 4)};
}

// The backward takes `out` and `logsumexp` from `given` if there is one.
template <class T>
Values attend(const Shape& c, const Inputs& x, const std::optional<Values>& given = {}) {
  const int n = c.rows(), width = c.width(), shared = c.shared();
  const Dropout options{c.dropout, 5, 2, 9};
  const AttentionShape shape{c.batch, c.sequence, c.heads, c.groups};
  const Array<T> q(x.q), k(x.k), v(x.v), dout(x.dout), out(x.q.size()), dq(x.q.size()), dk(x.k.size()), dv(x.k.size());
  const Array<Compute<T>> logsumexp(static_cast<std::size_t>(n) * c.heads), sums(x.q.size());
  const auto qkv = [&](const Array<T>& a, const Array<T>& b, const Array<T>& d) {
    return Qkv<T>{columns_of<T>(a.matrix(n, width)), columns_of<T>(b.matrix(n, shared)), columns_of<T>(d.matrix(n, shared))};
  };
  attention_forward<T>({}, out.matrix(n, width), logsumexp.vector(), qkv(q, k, v), shape, options);
  const Array<T> used_out(given ? given->out : out.get());
  const Array<Compute<T>> used_sums(given ? given->logsumexp : logsumexp.get());
  attention_backward<T>({}, qkv(dq, dk, dv), dout.matrix(n, width), qkv(q, k, v), used_out.matrix(n, width), used_sums.vector(),
                        shape, options, sums.matrix(n, width));
  return {out.get(), logsumexp.get(), dq.get(), dk.get(), dv.get()};
}

// Sequences of one position, below, at and beside the vectors (16 or 8), the groups of queries (32 or 16), the tiles (64; on a
// device 32 or 16) and the team's share (128); heads below, at and beside the row strides, the last beyond the largest.
const Shape shapes[] = {{1, 1, 1, 1, 8},         {2, 1, 2, 1, 128},      {1, 15, 2, 2, 24},       {1, 16, 1, 1, 33},
                        {2, 17, 1, 1, 16},       {1, 31, 2, 1, 48},      {1, 33, 1, 1, 32},       {1, 63, 1, 1, 128},
                        {2, 64, 2, 2, 64},       {1, 65, 4, 2, 33},      {1, 79, 1, 1, 80},       {1, 97, 1, 1, 96},
                        {1, 127, 1, 1, 24},      {1, 128, 1, 1, 100},    {2, 129, 6, 2, 8},       {1, 193, 2, 1, 64},
                        {1, 300, 2, 2, 20},      {1, 70, 1, 1, 192},     {1, 66, 1, 1, 256},      {1, 67, 2, 1, 260},
                        {1, 150, 4, 2, 24, 0.2}, {2, 77, 1, 1, 33, 0.5}, {1, 135, 3, 1, 64, 0.1}, {2, 41, 4, 2, 128, 0.3},
                        {1, 32, 2, 1, 68},       {1, 31, 4, 2, 62}};

// Bounds as in test_attention.cpp. Scores: `depth` products below 1, over sqrt(depth); a relative error of every probability by
// twice that, and the sums.
double relative_error(const Shape& c) {
  const double score = rounding<float> * (c.depth + 4) * std::sqrt(c.depth);
  return 2 * score + rounding<float> * (c.sequence + c.depth + 16);
}
// ds = p (dout.v - dout.out), magnitude below 2 depth; sums over `sequence` of p for each head that shares a key.
double gradient_error(const Shape& c) {
  const double probabilities =
      std::min(static_cast<double>(c.sequence), 4 + std::log(c.sequence) * std::exp(2 * std::sqrt(c.depth)));
  return relative_error(c) * 2 * std::sqrt(c.depth) * probabilities * c.heads / c.groups / (1 - c.dropout);
}

std::string name(const Shape& c) {
  return "T " + std::to_string(c.sequence) + " heads " + std::to_string(c.heads) + " of " + std::to_string(c.depth);
}

}  // namespace

TEST(AttentionLanes, FloatAgreesWithDouble) {
  for (const Shape& c : shapes) {
    SCOPED_TRACE(name(c));
    const Inputs x = random_inputs(c);
    const Values narrow = attend<float>(c, x), wide = attend<double>(c, x);
    expect_near(narrow.out, wide.out, 2 / (1 - c.dropout) * relative_error(c));
    expect_near(narrow.logsumexp, wide.logsumexp, relative_error(c), 2 * rounding<float>);
    expect_near(narrow.dq, wide.dq, gradient_error(c));
    expect_near(narrow.dk, wide.dk, gradient_error(c));
    expect_near(narrow.dv, wide.dv, gradient_error(c));
  }
}

TEST(AttentionLanes, Bf16IsRoundedOnce) {
  for (const Shape& c : shapes) {
    SCOPED_TRACE(name(c));
    const Inputs x = random_inputs(c);
    const Values narrow = attend<bf16>(c, x), wide = attend<double>(c, x, narrow);
    expect_rounded(narrow.out, wide.out, 2 / (1 - c.dropout) * relative_error(c));
    expect_near(narrow.logsumexp, wide.logsumexp, relative_error(c), 2 * rounding<float>);
    expect_rounded(narrow.dq, wide.dq, gradient_error(c));
    expect_rounded(narrow.dk, wide.dk, gradient_error(c));
    expect_rounded(narrow.dv, wide.dv, gradient_error(c));
  }
}

// Scores up to thousands: all but one probability vanish, and the running maximum moves late.
TEST(AttentionLanes, LargeScores) {
  for (const Shape& c : {Shape{1, 150, 2, 2, 24}, {1, 129, 1, 1, 64}}) {
    SCOPED_TRACE(name(c));
    const Inputs x = random_inputs(c, 64);
    const Values narrow = attend<float>(c, x), wide = attend<double>(c, x);
    // Scores have an absolute error: that of inputs below 1, times 64 squared.
    const double error = 2 * relative_error(c) * 64 * 64;
    expect_near(narrow.out, wide.out, 64 * 2 * error);
    expect_near(narrow.logsumexp, wide.logsumexp, error, 2 * rounding<float>);
  }
}

// Scratch keeps what the launch before left there.
TEST(AttentionLanes, WhatScratchHoldsDoesNotMatter) {
  const Shape all{1, 200, 2, 1, 256};
  Inputs poison = random_inputs(all);
  for (Numbers* values : {&poison.q, &poison.k, &poison.v, &poison.dout}) {
    std::fill(values->begin(), values->end(), std::numeric_limits<double>::quiet_NaN());
  }
  for (const Shape& c : {Shape{1, 1, 1, 1, 8}, {1, 39, 2, 1, 33}, {1, 130, 2, 2, 64}, {1, 70, 1, 1, 4}}) {
    SCOPED_TRACE(name(c));
    const Inputs x = random_inputs(c);
    const Values clean = attend<float>(c, x);
    EXPECT_TRUE(std::isnan(attend<float>(all, poison).dq[0]));
    const Values after = attend<float>(c, x);
    EXPECT_EQ(after.out, clean.out);
    EXPECT_EQ(after.logsumexp, clean.logsumexp);
    EXPECT_EQ(after.dq, clean.dq);
    EXPECT_EQ(after.dk, clean.dk);
    EXPECT_EQ(after.dv, clean.dv);
    for (const double value : after.dk) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Lanes, Exponential) {
  for (int i = -8730; i <= 8800; ++i) {
    const float x = static_cast<float>(i) * 0.01F + 0.003F * static_cast<float>(i % 3);
    const Lanes y = exponential(all_lanes(x));
    const double expected = std::exp(static_cast<double>(std::clamp(x, -87.3F, 88.0F)));
    ASSERT_NEAR(y[0], expected, 2e-7 * expected) << x;
    ASSERT_EQ(y[lane_count - 1], y[0]);
  }
  EXPECT_GT(exponential(all_lanes(-1e30F))[0], 0.0F);
  EXPECT_LT(exponential(all_lanes(-std::numeric_limits<float>::infinity()))[0], 2e-38F);
  EXPECT_TRUE(std::isnan(exponential(all_lanes(std::numeric_limits<float>::quiet_NaN()))[0]));
}

TEST(Lanes, TransposeSumAndPartsOfVectors) {
  Lanes rows[lane_count];
  for (int i = 0; i < lane_count; ++i) {
    for (int l = 0; l < lane_count; ++l) rows[i][l] = static_cast<float>(100 * i + l);
  }
  EXPECT_EQ(sum_of_lanes(rows[2]), static_cast<float>(lane_count * 200 + lane_count * (lane_count - 1) / 2));
  transpose(rows);
  for (int i = 0; i < lane_count; ++i) {
    for (int l = 0; l < lane_count; ++l) ASSERT_EQ(rows[i][l], static_cast<float>(100 * l + i));
  }
  const std::vector<float> wide = {1, 2, 3};
  const std::vector<bf16> narrow = {bf16(1), bf16(2), bf16(3)};
  const Lanes a = load_lanes(wide.data(), 3), b = load_lanes(narrow.data(), 3);
  for (int l = 0; l < lane_count; ++l) {
    EXPECT_EQ(a[l], l < 3 ? static_cast<float>(l + 1) : 0.0F);
    EXPECT_EQ(b[l], a[l]);
  }
}

}  // namespace minipipe::core::testing
