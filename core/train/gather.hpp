#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

// Of vectors of all ranks one behind the other: elements by rank, and where they begin. MPI counts both in int, but elements
// of any size, see ElementType.
struct GatherCounts {
  std::vector<int> counts;
  std::vector<int> offsets;
  std::size_t all = 0;

  // Collective. RunError on all ranks if they have more elements than MPI can count.
  GatherCounts(MPI_Comm comm, std::size_t mine) {
    int size = 1;
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    const std::uint64_t here = mine;
    std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size));
    check(MPI_Allgather(&here, 1, MPI_UINT64_T, sizes.data(), 1, MPI_UINT64_T, comm), "gathering sizes");
    all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
    if (all > most) {
      throw RunError("the ranks together have " + std::to_string(all) + " records to gather, more than MPI can count (" +
                     std::to_string(most) + ")");
    }
    counts.assign(sizes.begin(), sizes.end());
    offsets.resize(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  }
};

// `bytes` bytes as one element of a message.
class ElementType {
 public:
  explicit ElementType(std::size_t bytes) {
    check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type_), "MPI_Type_contiguous");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~ElementType() { MPI_Type_free(&type_); }
  ElementType(const ElementType&) = delete;
  ElementType& operator=(const ElementType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// Every rank's vector on rank 0, by rank; empty elsewhere. Collective. T is copied byte by byte between ranks of one program.
// RunError on all ranks if there are 2^31 elements or more.
template <class T>
std::vector<std::vector<T>> gather(MPI_Comm comm, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const GatherCounts sizes(comm, mine.size());
  const ElementType type(sizeof(T));
  std::vector<T> all(rank == 0 ? sizes.all : 0);
  check(MPI_Gatherv(mine.data(), static_cast<int>(mine.size()), type.get(), all.data(), sizes.counts.data(),
                    sizes.offsets.data(), type.get(), 0, comm),
        "gathering results");
  std::vector<std::vector<T>> result(rank == 0 ? sizes.counts.size() : 0);
  for (std::size_t r = 0; r < result.size(); ++r) {
    const auto begin = all.begin() + sizes.offsets[r];
    result[r].assign(begin, begin + sizes.counts[r]);
  }
  return result;
}

// Brings every rank's elements to all ranks, again and again: each rank has as many every time, so that the counts are
// exchanged once and a call allocates nothing. Borrows the communicator.
template <class T>
class GatherEverywhere {
 public:
  // Collective. RunError as for GatherCounts.
  GatherEverywhere(MPI_Comm comm, std::size_t mine) : comm_(comm), sizes_(comm, mine), type_(sizeof(T)), all_(sizes_.all) {
    static_assert(std::is_trivially_copyable_v<T>);
  }

  // In the order of ranks; until the next call. Collective. `mine`: as many elements as the constructor was told.
  const std::vector<T>& operator()(const std::vector<T>& mine) {
    check(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), type_.get(), all_.data(), sizes_.counts.data(),
                         sizes_.offsets.data(), type_.get(), comm_),
          "gathering results everywhere");
    return all_;
  }

 private:
  MPI_Comm comm_;
  GatherCounts sizes_;
  ElementType type_;
  std::vector<T> all_;
};

}  // namespace minipipe::core
