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

// Where an array lies: floats from the start of that memory.
struct Place {
  Lifetime lifetime = Lifetime::kept;
  std::size_t offset = 0;
};

// Hands out places; copies of a layout that go on from the same point lie on each other.
struct BlockLayout {
  Layout slot, workspace, scratch;

  Place take(Lifetime lifetime, std::size_t floats) {
    Layout& layout = lifetime == Lifetime::kept ? slot : lifetime == Lifetime::pending ? workspace : scratch;
    return {lifetime, layout.take(floats)};
  }
};

// The three memories in a pass of one microbatch.
template <class T>
struct BlockMemory {
  Vector<T> slot, workspace, scratch;
  int rows = 0;  // of the microbatch

  const Vector<T>& of(Place place) const {
    return place.lifetime == Lifetime::kept ? slot : place.lifetime == Lifetime::pending ? workspace : scratch;
  }
  Vector<T> vector(Place place, std::int64_t count) const { return slice<T>(of(place), place.offset, count); }
  Vector<T> by_row(Place place) const { return vector(place, rows); }
  Matrix<T> matrix(Place place, int columns) const { return slice_matrix<T>(of(place), place.offset, rows, columns); }
};

}  // namespace minipipe::core
