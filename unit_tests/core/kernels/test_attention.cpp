#include <tuple>

#include "core/kernels/attention.hpp"
#include "core/kernels/philox.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

struct Case {
  int batch, sequence, heads, depth;
  double dropout = 0;

  int columns() const { return heads * depth; }
  int rows() const { return batch * sequence; }
  AttentionShape shape() const { return {batch, sequence, heads}; }
  Dropout options() const { return {dropout, 5, 2, 9}; }
};

// The factor of probability (query, key) of head number `head` of the batch.
double factor(const Case& c, std::int64_t head, std::int64_t query, std::int64_t key) {
  if (c.dropout == 0) {
    return 1;
  }
  double factors[4];
  const std::int64_t groups = (c.sequence + 3) / 4;
  DropoutMask<double>(c.options()).factors(factors, static_cast<std::uint64_t>((head * c.sequence + query) * groups + key / 4));
  return factors[key % 4];
}

// Softmax over all keys at once.
Numbers reference(const Case& c, const Numbers& qkv, Numbers* logsumexp = nullptr) {
  Numbers out(c.rows() * c.columns());
  const auto at = [&](int b, int t, int part, int h, int d) {
    return qkv[(b * c.sequence + t) * 3 * c.columns() + part * c.columns() + h * c.depth + d];
  };
  for (int b = 0; b < c.batch; ++b) {
    for (int h = 0; h < c.heads; ++h) {
      for (int t = 0; t < c.sequence; ++t) {
        Numbers p(t + 1);
        double total = 0;
        for (int s = 0; s <= t; ++s) {
          double score = 0;
          for (int d = 0; d < c.depth; ++d) {
            score += at(b, t, 0, h, d) * at(b, s, 1, h, d);
          }
          p[s] = std::exp(score / std::sqrt(c.depth));
          total += p[s];
        }
        for (int s = 0; s <= t; ++s) {
          for (int d = 0; d < c.depth; ++d) {
            out[(b * c.sequence + t) * c.columns() + h * c.depth + d] +=
                p[s] / total * factor(c, b * c.heads + h, t, s) * at(b, s, 2, h, d);
          }
        }
        if (logsumexp != nullptr) {
          logsumexp->push_back(std::log(total));
        }
      }
    }
  }
  return out;
}

template <class T>
struct Result {
  Numbers out, logsumexp, gradient;
};

template <class T>
Result<T> run(const Case& c, const Numbers& qkv, const Numbers& output_gradient) {
  const Array<T> input(qkv), out(c.rows() * c.columns()), logsumexp(c.rows() * c.heads), dout(output_gradient),
      gradient(qkv.size());
  attention_forward<T>({}, out.matrix(c.rows(), c.columns()), logsumexp.vector(),
                       split_qkv<T>(input.matrix(c.rows(), 3 * c.columns())), c.shape(), c.options());
  attention_backward<T>({}, split_qkv<T>(gradient.matrix(c.rows(), 3 * c.columns())), dout.matrix(c.rows(), c.columns()),
                        split_qkv<T>(input.matrix(c.rows(), 3 * c.columns())), out.matrix(c.rows(), c.columns()),
                        logsumexp.vector(), c.shape(), c.options());
  return {out.get(), logsumexp.get(), gradient.get()};
}

// One position, odd counts, one tile and a bit, three tiles; head depths below, at and beside vector widths.
const Case cases[] = {{1, 1, 1, 1},       {2, 7, 3, 5},       {1, 33, 3, 16},     {2, 64, 1, 8},
                      {1, 70, 1, 4},      {1, 130, 2, 3},     {1, 65, 1, 40},     {1, 21, 1, 128},
                      {2, 7, 3, 5, 0.25}, {1, 70, 2, 4, 0.5}, {1, 131, 1, 3, 0.1}};

}  // namespace

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, Scalars);

TYPED_TEST(Attention, ForwardAgreesWithPlainSoftmax) {
  using T = TypeParam;
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "T " << c.sequence << " heads " << c.heads << " depth " << c.depth);
    const Numbers qkv = random_numbers(c.rows() * 3 * c.columns(), 1, -2, 2);
    Numbers logsumexp;
    const Numbers expected = reference(c, qkv, &logsumexp);
    const Result<T> result = run<T>(c, qkv, Numbers(c.rows() * c.columns(), 1.0));
    // Scores: depth products below 4, over sqrt(depth). A relative error of every probability by twice that, and the sums.
    const double score = rounding<T> * (c.depth + 4) * 4 * std::sqrt(c.depth);
    const double tolerance = 2 * score + rounding<T> * (c.sequence + 16);
    expect_near(result.out, expected, 2 / (1 - c.dropout) * tolerance);
    expect_near(result.logsumexp, logsumexp, tolerance, 2 * rounding<T>);
  }
}

// By which entries derivatives are taken. Under the sanitizers, where all would take a minute, by every seventh of the larger
// cases: no row's length has the factor 7, so these are of all rows, features and tiles.
std::size_t step_of_differences(const Case& c) {
#ifdef __SANITIZE_ADDRESS__
  if (c.rows() * 3 * c.columns() > 1000) return 7;
#endif
  static_cast<void>(c);
  return 1;
}

TEST(AttentionGradient, AgreesWithDifferences) {
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "T " << c.sequence << " heads " << c.heads << " depth " << c.depth);
    const Numbers qkv = random_numbers(c.rows() * 3 * c.columns(), 1, -2, 2), w = random_numbers(c.rows() * c.columns(), 2);
    Array<double> input(qkv);
    const Array<double> out(w.size()), logsumexp(c.rows() * c.heads);
    const auto weighted_output = [&](const Numbers& at) {
      input.set(at);
      attention_forward<double>({}, out.matrix(c.rows(), c.columns()), logsumexp.vector(),
                                split_qkv<double>(input.matrix(c.rows(), 3 * c.columns())), c.shape(), c.options());
      return dot(w, out.get());
    };
    const std::size_t n = step_of_differences(c);
    const Result<double> result = run<double>(c, qkv, w);
    double terms = 0;  // what the differences' rounding grows with
    for (std::size_t i = 0; i < w.size(); ++i) terms += std::abs(w[i] * result.out[i]);
    expect_near(every_nth(result.gradient, n), differences(qkv, weighted_output, n), 1e-8 + 1e-11 * terms, 1e-8);
  }
}

TEST(AttentionGradient, FloatAgreesWithDouble) {
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << "T " << c.sequence << " heads " << c.heads << " depth " << c.depth);
    const Numbers qkv = random_numbers(c.rows() * 3 * c.columns(), 1, -1, 1), w = random_numbers(c.rows() * c.columns(), 2);
    // ds = p (dout.v - dout.out): magnitude below 2 depth, relative error as in the forward; sums over T of p at most T.
    const double score = rounding<float> * (c.depth + 4) * std::sqrt(c.depth);
    const double relative = 2 * score + rounding<float> * (c.sequence + c.depth + 16);
    const double probabilities =
        std::min(static_cast<double>(c.sequence), 4 + std::log(c.sequence) * std::exp(2 * std::sqrt(c.depth)));
    expect_near(run<float>(c, qkv, w).gradient, run<double>(c, qkv, w).gradient,
                relative * 2 * std::sqrt(c.depth) * probabilities / (1 - c.dropout));
  }
}

TYPED_TEST(Attention, LaterTokensDoNotMatter) {
  using T = TypeParam;
  const Case c{1, 100, 2, 8};
  Numbers qkv = random_numbers(c.rows() * 3 * c.columns(), 1, -2, 2), w = random_numbers(c.rows() * c.columns(), 2);
  const int cut = 71;
  // No gradient comes from the rows behind the cut.
  std::fill(w.begin() + cut * c.columns(), w.end(), 0.0);
  const Result<T> before = run<T>(c, qkv, w);
  const Numbers other = random_numbers(qkv.size(), 3, -9, 9);
  std::copy(other.begin() + cut * 3 * c.columns(), other.end(), qkv.begin() + cut * 3 * c.columns());
  const Result<T> after = run<T>(c, qkv, w);
  const auto head = [](const Numbers& values, int count) { return Numbers(values.begin(), values.begin() + count); };
  EXPECT_EQ(head(before.out, cut * c.columns()), head(after.out, cut * c.columns()));
  EXPECT_NE(before.out, after.out);
  EXPECT_EQ(head(before.gradient, cut * 3 * c.columns()), head(after.gradient, cut * 3 * c.columns()));
  for (std::size_t i = static_cast<std::size_t>(cut) * 3 * c.columns(); i < qkv.size(); ++i) {
    EXPECT_EQ(after.gradient[i], 0.0);
  }
}

TYPED_TEST(Attention, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const Case c{1, 80, 1, 4};
  Numbers qkv = random_numbers(c.rows() * 3 * c.columns(), 1, -100, 100);
  for (const double value : run<T>(c, qkv, Numbers(c.rows() * c.columns(), 1.0)).gradient) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(Attention, BatchEntriesAndHeadsAreIndependent) {
  using T = TypeParam;
  const Case two{2, 37, 1, 6}, one{1, 37, 1, 6};
  const Numbers qkv = random_numbers(two.rows() * 18, 1), w = random_numbers(two.rows() * 6, 2);
  const Result<T> both = run<T>(two, qkv, w);
  const Result<T> second = run<T>(one, Numbers(qkv.begin() + 37 * 18, qkv.end()), Numbers(w.begin() + 37 * 6, w.end()));
  EXPECT_EQ(Numbers(both.out.begin() + 37 * 6, both.out.end()), second.out);
  EXPECT_EQ(Numbers(both.gradient.begin() + 37 * 18, both.gradient.end()), second.gradient);
}

// Grouped heads against the same keys and values written out once for each query head: the output to the last bit, the
// gradients as sums over the heads that share.
TYPED_TEST(Attention, SharedKeysAndValuesAreThoseOfRepeatedOnes) {
  using T = TypeParam;
  for (const auto& [sequence, heads, groups, depth, dropout] :
       {std::tuple<int, int, int, int, double>{1, 2, 1, 2, 0}, {37, 4, 2, 6, 0.2}, {70, 6, 2, 4, 0}, {130, 3, 1, 3, 0.3}}) {
    SCOPED_TRACE(::testing::Message() << "T " << sequence << " heads " << heads << " groups " << groups);
    const Case c{2, sequence, heads, depth, dropout};
    const int rows = c.rows(), width = c.columns(), shared = groups * depth, share = heads / groups;
    const Numbers q = random_numbers(rows * width, 1, -2, 2), k = random_numbers(rows * shared, 2, -2, 2),
                  v = random_numbers(rows * shared, 3, -2, 2), w = random_numbers(rows * width, 4);
    Numbers repeated;
    for (int r = 0; r < rows; ++r) {
      repeated.insert(repeated.end(), q.begin() + r * width, q.begin() + (r + 1) * width);
      for (const Numbers* values : {&k, &v}) {
        for (int h = 0; h < heads; ++h) {
          const auto from = values->begin() + r * shared + h / share * depth;
          repeated.insert(repeated.end(), from, from + depth);
        }
      }
    }
    const Result<T> expected = run<T>(c, repeated, w);

    AttentionShape shape = c.shape();
    shape.kv_heads = groups;
    const Array<T> aq(q), ak(k), av(v), dout(w), out(rows * width), logsumexp(rows * heads), dq(q.size()), dk(k.size()),
        dv(v.size());
    const auto qkv = [&](const Array<T>& a, const Array<T>& b, const Array<T>& d) {
      return Qkv<T>{columns_of<T>(a.matrix(rows, width)), columns_of<T>(b.matrix(rows, shared)),
                    columns_of<T>(d.matrix(rows, shared))};
    };
    attention_forward<T>({}, out.matrix(rows, width), logsumexp.vector(), qkv(aq, ak, av), shape, c.options());
    attention_backward<T>({}, qkv(dq, dk, dv), dout.matrix(rows, width), qkv(aq, ak, av), out.matrix(rows, width),
                          logsumexp.vector(), shape, c.options());
    EXPECT_EQ(out.get(), expected.out);
    EXPECT_EQ(logsumexp.get(), expected.logsumexp);
    Numbers expected_q, expected_k(k.size()), expected_v(v.size());
    double largest = 1;
    for (int r = 0; r < rows; ++r) {
      const auto row = expected.gradient.begin() + r * 3 * width;
      expected_q.insert(expected_q.end(), row, row + width);
      for (int i = 0; i < width; ++i) {
        const int target = r * shared + i / depth / share * depth + i % depth;
        expected_k[target] += row[width + i];
        expected_v[target] += row[2 * width + i];
        largest = std::max({largest, std::abs(row[width + i]), std::abs(row[2 * width + i])});
      }
    }
    EXPECT_EQ(dq.get(), expected_q);
    // The same terms, below T share of them, added in another order.
    const double tolerance = rounding<T> * largest * sequence * share;
    expect_near(dk.get(), expected_k, tolerance);
    expect_near(dv.get(), expected_v, tolerance);
  }
}

TEST(AttentionShape, ThatDoesNotFitIsRefused) {
  const Array<double> values(Numbers(12)), out(4), logsumexp(4);
  const auto qkv = split_qkv<double>(values.matrix(1, 12));
  const auto forward = [&](std::int64_t heads, std::int64_t groups) {
    attention_forward<double>({}, out.matrix(1, 4), logsumexp.vector(), qkv, {1, 1, heads, groups});
  };
  EXPECT_NO_THROW(forward(4, 4));
  EXPECT_THROW(forward(4, 2), RunError);  // keys of two heads in the columns of four
  EXPECT_THROW(forward(4, 3), RunError);
  EXPECT_THROW(forward(3, 3), RunError);
}

}  // namespace minipipe::core::testing
