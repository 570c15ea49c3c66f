#pragma once

#include <span>

#include "core/types/types.hpp"

namespace minipipe::core {

// Sums in double over blocks of fixed size, then over the blocks in order: the result does not depend on the thread count.
// `workspace` holds at least sum_workspace(values.size()) numbers. With `accumulate` the sum is added to result(0).
std::int64_t sum_workspace(std::int64_t count);

template <class T>
void sum(const ExecutionSpace& space, Vector<double> result, ConstVector<T> values, Vector<double> workspace, bool accumulate);

template <class T>
void sum_of_squares(const ExecutionSpace& space, Vector<double> result, ConstVector<T> values, Vector<double> workspace,
                    bool accumulate);

// `rows` runs of `columns` values whose starts are `stride` apart.
template <class T>
struct SquareRectangle {
  const T* values = nullptr;
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // of no meaning for one row
};

// results(p) = sum of the squares of rectangle p, to the last bit the sum_of_squares of the same values one behind the other,
// in a few launches for all of them. `workspace` holds at least the sum of sum_workspace(size) over the rectangles.
template <class T>
void sums_of_squares(const ExecutionSpace& space, Vector<double> results, std::span<const SquareRectangle<T>> rectangles,
                     Vector<double> workspace);

// Waits for `space` and returns result(0).
double read_scalar(const ExecutionSpace& space, ConstVector<double> result);

}  // namespace minipipe::core
