#pragma once

#include <cstddef>

#include "core/model/padding.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// How long an array of a block lives, which decides where it lies.
enum class Lifetime {
  kept,     // from the forward to the end of the backward: in the microbatch's activation slot
  pending,  // from the input half of the backward to its weight half: in the workspace
  passing   // within one pass of one block: in scratch memory that all blocks share
};

// Of the arrays that the backward reads: those its input half reads last, and those its weight half does. Arrays that the
// backward computes again begin to live there.
struct BackwardLifetimes {
  Lifetime until_weights, until_inputs;
};
inline BackwardLifetimes backward_lifetimes(bool again) {
  if (again) return {Lifetime::pending, Lifetime::passing};
  return {Lifetime::kept, Lifetime::kept};
}

// Where an array lies: wide elements from the start of that memory. A wide element is a Compute<T> if T is the type in which
// activations are stored.
struct Place {
  Lifetime lifetime = Lifetime::kept;
  std::size_t offset = 0;
};

// Hands out places; copies of a layout that go on from the same point lie on each other.
struct BlockLayout {
  Layout slot, workspace, scratch;
  std::size_t per_wide = 1;  // elements of type T in a wide one

  // For so many elements of type T, and for so many wide ones.
  Place take(Lifetime lifetime, std::size_t elements) { return take_wide(lifetime, (elements + per_wide - 1) / per_wide); }
  Place take_wide(Lifetime lifetime, std::size_t elements) {
    Layout& layout = lifetime == Lifetime::kept ? slot : lifetime == Lifetime::pending ? workspace : scratch;
    return {lifetime, layout.take(elements)};
  }
  void go_behind(const BlockLayout& other) {
    slot.go_behind(other.slot);
    workspace.go_behind(other.workspace);
    scratch.go_behind(other.scratch);
  }
};
template <class T>
inline constexpr std::size_t elements_per_wide = sizeof(Compute<T>) / sizeof(T);

// A matrix of type T in memory of wide elements.
template <class T>
Matrix<T> matrix_in(const Vector<Compute<T>>& memory, std::size_t offset, std::int64_t rows, std::int64_t columns) {
  return Matrix<T>(reinterpret_cast<T*>(memory.data() + offset), static_cast<std::size_t>(rows),
                   static_cast<std::size_t>(columns));
}

// Numbers of another type, integers or doubles, in memory of wide elements: take wide_room<Value>(count) of those.
template <class Value>
constexpr std::size_t wide_room(std::size_t count) {
  return count * (sizeof(Value) / sizeof(float));  // a wide element is a float, or larger
}
template <class Value, class Wide>
Vector<Value> values_in(const Vector<Wide>& memory, std::size_t offset, std::int64_t count) {
  return Vector<Value>(reinterpret_cast<Value*>(memory.data() + offset), static_cast<std::size_t>(count));
}

// `count` rows of a matrix from `first` on.
template <class T>
Matrix<T> rows_of(const Matrix<T>& matrix, std::int64_t first, std::int64_t count) {
  const auto columns = static_cast<std::int64_t>(matrix.extent(1));
  return slice_matrix(flatten(matrix), first * columns, count, columns);
}

// The three memories in a pass of one microbatch.
template <class T>
struct BlockMemory {
  Vector<Compute<T>> slot, workspace, scratch;
  int rows = 0;  // of the microbatch

  const Vector<Compute<T>>& of(Place place) const {
    return place.lifetime == Lifetime::kept ? slot : place.lifetime == Lifetime::pending ? workspace : scratch;
  }
  Vector<Compute<T>> vector(Place place, std::int64_t count) const { return slice(of(place), place.offset, count); }
  Vector<Compute<T>> by_row(Place place) const { return vector(place, rows); }
  Matrix<Compute<T>> wide_matrix(Place place, int columns) const {
    return slice_matrix(of(place), place.offset, rows, columns);
  }
  Matrix<T> matrix(Place place, int columns) const { return matrix_in<T>(of(place), place.offset, rows, columns); }
  Vector<std::int32_t> integers(Place place, std::int64_t count) const {
    return values_in<std::int32_t>(of(place), place.offset, count);
  }
  Vector<double> doubles(Place place, std::int64_t count) const { return values_in<double>(of(place), place.offset, count); }
};

}  // namespace minipipe::core
