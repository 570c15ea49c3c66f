#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Independent normal numbers of mean 0. Value i depends on (seed, parameter, i) only: give each parameter of the model a number
// that does not depend on the partition.
template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, double standard_deviation, std::uint64_t seed,
                 std::uint64_t parameter);

// A rectangle of such a parameter, [rows, columns] with its top left at (full_row, full_column) of a matrix of full_columns
// columns, written to `rows` runs whose starts are `stride` apart. The numbers are those that the whole matrix would have
// there.
struct NormalRectangle {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::int64_t full_row = 0;
  std::int64_t full_column = 0;
  std::int64_t full_columns = 0;
};
template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, const NormalRectangle& rectangle, double standard_deviation,
                 std::uint64_t seed, std::uint64_t parameter);

// Independent uniform numbers in [low, high), mapped. The map of time steps turns a logarithm into what softplus maps to the
// number. Value i depends on (seed, parameter, i) only.
enum class UniformMap { identity, logarithm, inverse_softplus_of_exponential };
template <class T>
void fill_uniform(const ExecutionSpace& space, Vector<T> values, double low, double high, UniformMap map, std::uint64_t seed,
                  std::uint64_t parameter);

}  // namespace minipipe::core
