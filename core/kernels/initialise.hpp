#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Independent normal numbers of mean 0. Value i depends on (seed, parameter, i) only: give each parameter of the model a number
// that does not depend on the partition.
template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, double standard_deviation, std::uint64_t seed,
                 std::uint64_t parameter);

}  // namespace minipipe::core
