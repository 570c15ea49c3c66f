#pragma once

#include <mpi.h>

#include <numeric>
#include <type_traits>
#include <vector>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

// Every rank's vector on rank 0, by rank; empty elsewhere. Collective. T is copied byte by byte between ranks of one program.
template <class T>
std::vector<std::vector<T>> gather(MPI_Comm comm, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int bytes = static_cast<int>(mine.size() * sizeof(T));
  std::vector<int> counts(rank == 0 ? size : 0);
  check(MPI_Gather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, comm), "gathering sizes");
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  std::vector<T> all(rank == 0 ? (offsets.back() + counts.back()) / sizeof(T) : 0);
  check(MPI_Gatherv(mine.data(), bytes, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE, 0, comm),
        "gathering results");
  std::vector<std::vector<T>> result(counts.size());
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offsets[r] / sizeof(T));
    result[r].assign(begin, begin + static_cast<std::ptrdiff_t>(counts[r] / sizeof(T)));
  }
  return result;
}

}  // namespace minipipe::core
