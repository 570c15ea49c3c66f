#include "core/kernels/selective_scan.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

struct Values {
  Numbers x, dt, b, c, a_log, d, dt_bias;
};

// One position, several chunks that are full or not, heads that share a group, heads wider than the vector block.
const ScanShape cases[] = {{1, 1, 1, 1, 1, 1},   {2, 37, 2, 3, 1, 5}, {1, 70, 4, 2, 2, 3},
                           {1, 5, 2, 40, 2, 17}, {3, 32, 3, 1, 3, 4}, {1, 65, 1, 33, 1, 2}};

Values random_values(const ScanShape& z, unsigned seed) {
  const std::int64_t rows = z.batch * z.sequence;
  return {random_numbers(rows * z.heads * z.head_size, seed),
          random_numbers(rows * z.heads, seed + 1, -3, 1),
          random_numbers(rows * z.groups * z.state, seed + 2),
          random_numbers(rows * z.groups * z.state, seed + 3),
          random_numbers(z.heads, seed + 4, -1, 1),
          random_numbers(z.heads, seed + 5),
          random_numbers(z.heads, seed + 6)};
}

Numbers scan(const ScanShape& z, const Values& v) {
  Numbers y(v.x.size());
  for (std::int64_t n = 0; n < z.batch * z.heads; ++n) {
    const std::int64_t h = n % z.heads, group = h / (z.heads / z.groups);
    Numbers state(z.head_size * z.state);
    for (std::int64_t t = 0; t < z.sequence; ++t) {
      const std::int64_t row = n / z.heads * z.sequence + t;
      const double dt = std::log1p(std::exp(v.dt[row * z.heads + h] + v.dt_bias[h]));
      const double decay = std::exp(-dt * std::exp(v.a_log[h]));
      for (std::int64_t p = 0; p < z.head_size; ++p) {
        const std::int64_t at = (row * z.heads + h) * z.head_size + p;
        y[at] = v.d[h] * v.x[at];
        for (std::int64_t s = 0; s < z.state; ++s) {
          double& value = state[p * z.state + s];
          value = decay * value + dt * v.b[(row * z.groups + group) * z.state + s] * v.x[at];
          y[at] += v.c[(row * z.groups + group) * z.state + s] * value;
        }
      }
    }
  }
  return y;
}

// x, b, c and dt as columns of one array with a column to spare, as a fused projection leaves them.
template <class T>
struct Fused {
  ScanShape z;
  std::int64_t rows, first[4], counts[4], width;
  Array<T> array;

  explicit Fused(const ScanShape& shape)
      : z(shape),
        rows(z.batch * z.sequence),
        first{},
        counts{z.heads * z.head_size, z.groups * z.state, z.groups * z.state, z.heads},
        width(1),
        array(0) {
    for (int i = 0; i < 4; ++i) {
      first[i] = width;
      width += counts[i];
    }
    array = Array<T>(Numbers(rows * width, 77));
  }
  void set(const Values& v) {
    Numbers all(rows * width, 77);
    const Numbers* parts[4] = {&v.x, &v.b, &v.c, &v.dt};
    for (int i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < rows * counts[i]; ++j)
        all[j / counts[i] * width + first[i] + j % counts[i]] = (*parts[i])[j];
    }
    array.set(all);
  }
  Numbers part(int i) const {
    const Numbers all = array.get();
    Numbers values(rows * counts[i]);
    for (std::int64_t j = 0; j < rows * counts[i]; ++j) values[j] = all[j / counts[i] * width + first[i] + j % counts[i]];
    return values;
  }
  ScanInputs<T> inputs() const {
    const auto columns = [&](int i) { return columns_of(array.matrix(rows, width), first[i], counts[i]); };
    return {columns(0), columns(3), columns(1), columns(2)};
  }
};

template <class T>
struct ScanRun {
  ScanShape z;
  Fused<T> inputs, gradients;
  Array<T> a_log, d, dt_bias, out, states, workspace, sums, da_log, dd, ddt_bias;

  ScanRun(const ScanShape& shape, const Values& v)
      : z(shape),
        inputs(shape),
        gradients(shape),
        a_log(v.a_log),
        d(v.d),
        dt_bias(v.dt_bias),
        out(v.x.size()),
        states(scan_states(shape)),
        workspace(scan_workspace(shape)),
        sums(scan_sums(shape)),
        da_log(Numbers(z.heads, 0)),
        dd(Numbers(z.heads, 0)),
        ddt_bias(Numbers(z.heads, 0)) {
    inputs.set(v);
  }
  Matrix<T> wide(const Array<T>& array) const { return array.matrix(z.batch * z.sequence, z.heads * z.head_size); }
  void forward() {
    selective_scan_forward<T>({}, wide(out), states.vector(), inputs.inputs(),
                              ScanParameters<T>{a_log.vector(), d.vector(), dt_bias.vector()}, z);
  }
  void backward_input(const ScanInputs<T>& to, const Array<T>& dy) {
    selective_scan_backward_input<T>({}, to, sums.vector(), wide(dy), inputs.inputs(),
                                     ScanParameters<T>{a_log.vector(), d.vector(), dt_bias.vector()}, states.vector(),
                                     workspace.vector(), z);
  }
  void backward(const Array<T>& dy) {
    backward_input(gradients.inputs(), dy);
    selective_scan_backward_parameters<T>({}, {da_log.vector(), dd.vector(), ddt_bias.vector()}, sums.vector(), z);
  }
};

// Sequence b of a batch alone.
Values only(const ScanShape& z, const Values& v, std::int64_t b) {
  const auto part = [&](const Numbers& all, std::int64_t columns) {
    const std::int64_t count = z.sequence * columns;
    return Numbers(all.begin() + b * count, all.begin() + (b + 1) * count);
  };
  return {part(v.x, z.heads * z.head_size),
          part(v.dt, z.heads),
          part(v.b, z.groups * z.state),
          part(v.c, z.groups * z.state),
          v.a_log,
          v.d,
          v.dt_bias};
}

// The states forget: |h| <= max |B x| dt / (1 - exp(-dt |A|)), below 4 for the values above. An output is a sum of S terms of
// that size, and a step's rounding is passed on at most that many times; the float exponential adds 2e-7 to each decay.
template <class T>
double tolerance(const ScanShape& z) {
  return (rounding<T> * 8 + (sizeof(T) == 4 ? 2e-7 : 0)) * static_cast<double>(z.state + 4) * 8;
}

}  // namespace

template <class T>
class SelectiveScan : public ::testing::Test {};
TYPED_TEST_SUITE(SelectiveScan, Scalars);

TYPED_TEST(SelectiveScan, ForwardAgreesWithLoop) {
  using T = TypeParam;
  for (const ScanShape& z : cases) {
    const Values v = random_values(z, 1);
    ScanRun<T> run(z, v);
    run.forward();
    expect_near(run.out.get(), scan(z, v), tolerance<T>(z));
    for (const double value : run.states.get()) ASSERT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(SelectiveScan, BackwardAgreesWithDifferences) {
  using T = TypeParam;
  for (const ScanShape& z : cases) {
    const Values v = random_values(z, 11);
    const Numbers w = random_numbers(v.x.size(), 12);
    const Array<T> dy(w);
    ScanRun<T> run(z, v);
    run.forward();
    run.backward(dy);
    const auto slope = [&](Numbers Values::*member) {
      return differences(v.*member, [&](const Numbers& at) {
        Values moved = v;
        moved.*member = at;
        return dot(w, scan(z, moved));
      });
    };
    const auto heads = static_cast<double>(z.head_size * z.heads / z.groups), steps = static_cast<double>(z.sequence * z.batch);
    const double error = tolerance<T>(z);
    expect_near(run.gradients.part(0), slope(&Values::x), error + 3e-8);
    expect_near(run.gradients.part(1), slope(&Values::b), error * heads + 3e-8);
    expect_near(run.gradients.part(2), slope(&Values::c), error * heads + 3e-8);
    expect_near(run.gradients.part(3), slope(&Values::dt), error * heads + 3e-8);
    expect_near(run.da_log.get(), slope(&Values::a_log), error * heads * std::sqrt(steps) + 1e-7);
    expect_near(run.dd.get(), slope(&Values::d), error * heads * std::sqrt(steps) + 1e-7);
    expect_near(run.ddt_bias.get(), slope(&Values::dt_bias), error * heads * std::sqrt(steps) + 1e-7);
    // The spare column is left alone; the parameters' gradients are added to.
    for (std::int64_t row = 0; row < z.batch * z.sequence; ++row) {
      ASSERT_EQ(run.gradients.array.get()[row * run.gradients.width], 77);
    }
    const Numbers once = run.dd.get();
    selective_scan_backward_parameters<T>({}, {run.da_log.vector(), run.dd.vector(), run.ddt_bias.vector()}, run.sums.vector(),
                                          z);
    for (std::int64_t h = 0; h < z.heads; ++h) EXPECT_EQ(run.dd.get()[h], 2 * once[h]);
  }
}

// Bit for bit: what happens in one sequence does not depend on who computes the others.
TYPED_TEST(SelectiveScan, SequencesAreIndependentToTheLastBit) {
  using T = TypeParam;
  const ScanShape z{3, 45, 4, 5, 2, 6};
  ScanShape single = z;
  single.batch = 1;
  const Values v = random_values(z, 21);
  const Numbers w = random_numbers(v.x.size(), 22);
  ScanRun<T> all(z, v);
  all.forward();
  all.backward(Array<T>(w));
  Numbers out, parts[4], da_log(z.heads), dd(z.heads), ddt_bias(z.heads);
  const Array<T> added[3] = {Array<T>(da_log), Array<T>(dd), Array<T>(ddt_bias)};
  const auto append = [](Numbers& to, const Numbers& from) { to.insert(to.end(), from.begin(), from.end()); };
  for (std::int64_t b = 0; b < z.batch; ++b) {
    ScanRun<T> one(single, only(z, v, b));
    const std::int64_t count = z.sequence * z.heads * z.head_size;
    one.forward();
    one.backward(Array<T>(Numbers(w.begin() + b * count, w.begin() + (b + 1) * count)));
    append(out, one.out.get());
    for (int i = 0; i < 4; ++i) append(parts[i], one.gradients.part(i));
    selective_scan_backward_parameters<T>({}, {added[0].vector(), added[1].vector(), added[2].vector()}, one.sums.vector(),
                                          single);
  }
  EXPECT_EQ(all.out.get(), out);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all.gradients.part(i), parts[i]);
  EXPECT_EQ(all.da_log.get(), added[0].get());
  EXPECT_EQ(all.dd.get(), added[1].get());
  EXPECT_EQ(all.ddt_bias.get(), added[2].get());
}

// More sequences and heads than a device takes at a time.
TYPED_TEST(SelectiveScan, ManyHeadsDoNotMeet) {
  using T = TypeParam;
  const ScanShape z{3, 3, 200, 2, 1, 9}, single{1, 3, 200, 2, 1, 9};
  const Values v = random_values(z, 71);
  const Numbers w = random_numbers(v.x.size(), 72);
  ScanRun<T> all(z, v), last(single, only(z, v, 2));
  all.forward();
  all.backward(Array<T>(w));
  last.forward();
  last.backward(Array<T>(Numbers(w.end() - static_cast<std::ptrdiff_t>(w.size() / 3), w.end())));
  for (int i = 0; i < 4; ++i) {
    const Numbers of_all = all.gradients.part(i);
    EXPECT_EQ(Numbers(of_all.end() - static_cast<std::ptrdiff_t>(of_all.size() / 3), of_all.end()), last.gradients.part(i));
  }
  const Numbers sums = all.sums.get();
  EXPECT_EQ(Numbers(sums.end() - static_cast<std::ptrdiff_t>(sums.size() / 3), sums.end()), last.sums.get());
}

TYPED_TEST(SelectiveScan, KeepsTheStateAtTheEndOfEachChunk) {
  using T = TypeParam;
  const ScanShape z{1, scan_chunk + 3, 1, 1, 1, 1};
  Values v = random_values(z, 31);
  // With C = 1 and D = 0 the output is the state.
  v.c.assign(v.c.size(), 1);
  v.d = {0};
  ScanRun<T> run(z, v);
  run.forward();
  const std::vector<T> out = run.out.exact();
  EXPECT_EQ(run.states.exact(), (std::vector<T>{out[scan_chunk - 1], out.back()}));
}

TYPED_TEST(SelectiveScan, ExtremeStepsStayFinite) {
  using T = TypeParam;
  const ScanShape z{1, 40, 1, 3, 1, 2};
  Values v = random_values(z, 41);
  for (std::size_t t = 0; t < v.dt.size(); ++t) v.dt[t] = t % 3 == 0 ? 60 : t % 3 == 1 ? -60 : -12;
  ScanRun<T> run(z, v);
  run.forward();
  // Steps up to 60: outputs up to 120 S.
  expect_near(run.out.get(), scan(z, v), 240 * tolerance<T>(z));
  const Numbers w = random_numbers(v.x.size(), 42);
  run.backward(Array<T>(w));
  const Numbers expected = differences(v.dt, [&](const Numbers& at) {
    Values moved = v;
    moved.dt = at;
    return dot(w, scan(z, moved));
  });
  expect_near(run.gradients.part(3), expected, 240 * tolerance<T>(z) + 1e-6);
}

TYPED_TEST(SelectiveScan, TheGradientToXMayTakeThePlaceOfTheOutputs) {
  using T = TypeParam;
  const ScanShape z{2, 37, 2, 5, 1, 3};
  const Values v = random_values(z, 51);
  const Array<T> dy(random_numbers(v.x.size(), 52));
  ScanRun<T> run(z, v);
  run.forward();
  run.backward(dy);
  const Numbers apart = run.gradients.part(0), b = run.gradients.part(1);
  ScanInputs<T> to = run.gradients.inputs();
  to.x = columns_of(run.wide(dy));
  run.backward_input(to, dy);
  EXPECT_EQ(dy.get(), apart);
  EXPECT_EQ(run.gradients.part(1), b);
}

TEST(SelectiveScanShapes, MismatchThrows) {
  const ScanShape z{1, 4, 2, 3, 1, 2};
  ScanRun<float> run(z, random_values(z, 61));
  EXPECT_NO_THROW(run.forward());
  run.z.groups = 2;
  EXPECT_THROW(run.forward(), RunError);
  run.z = z;
  run.z.sequence = 5;
  EXPECT_THROW(run.forward(), RunError);
  run.z = z;
  run.states = Array<float>(1);
  EXPECT_THROW(run.forward(), RunError);
}

}  // namespace minipipe::core::testing
