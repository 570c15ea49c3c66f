#pragma once

#include <cmath>

#include "core/optim/adamw.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

// Five steps of an optimizer with AdamW's moments against a plain loop. `update` is the function under test, with the arguments
// of adamw_update; direction(m, v, gradient, step, options) gives the step's direction from the moments as they are after it,
// without weight decay. `roundings`: of a direction, in one step.
template <class T, class Update, class Direction>
void expect_steps_agree(const Update& update, const Direction& direction, double roundings) {
  const std::size_t count = 5001;
  const AdamWOptions options{0.9, 0.95, 1e-8, 0.1};
  // The element at 3000 belongs to no range and stays as it is.
  const std::vector<ParameterRange> ranges = {{0, 1000, true}, {1000, 500, true}, {1500, 1500, false}, {3001, 2000, true}};
  Numbers p = random_numbers(count, 1), m(count), v(count);
  const Array<T> parameters(p), first(m), second(v);
  const double rate = 0.01, scale = 0.25;
  for (int step = 1; step <= 5; ++step) {
    const Numbers g = random_numbers(count, 10 + step, 0.1, 1);
    const Array<T> gradients(g);
    update(parameters.vector(), first.vector(), second.vector(), gradients.vector(), ranges, options, rate, step, scale);
    EXPECT_EQ(gradients.get(), g);
    for (const ParameterRange& range : ranges) {
      for (std::int64_t i = range.offset; i < range.offset + range.count; ++i) {
        const double gradient = scale * g[i];
        m[i] = options.beta1 * m[i] + (1 - options.beta1) * gradient;
        v[i] = options.beta2 * v[i] + (1 - options.beta2) * gradient * gradient;
        p[i] -= rate * (direction(m[i], v[i], gradient, step, options) + (range.decay ? options.weight_decay * p[i] : 0));
      }
    }
  }
  expect_near(parameters.get(), p, 5 * rounding<T> * (rate * roundings + 2));
  expect_near(first.get(), m, 20 * rounding<T>);
  expect_near(second.get(), v, 20 * rounding<T>);
}

}  // namespace minipipe::core::testing
