#pragma once

#include <string>

#include "core/types/types.hpp"

// Loops of the kernels. On the host each is a parallel loop over rows or blocks with a plain inner loop that the compiler turns
// into vector code; on a device the inner loop is spread over a team. Sums are formed in an order fixed by the sizes alone.
namespace minipipe::core {

struct HostMember {};
using RowMember = std::conditional_t<on_host, HostMember, TeamMember>;

inline constexpr int device_team_size = 128;
inline constexpr int sum_lanes = 16;

// Scratch of a team for this many values. Kokkos hands out multiples of 8 bytes, and on a device nothing beyond what was asked
// for.
template <class T>
constexpr int scratch_bytes(std::int64_t elements) {
  return static_cast<int>((elements * static_cast<std::int64_t>(sizeof(T)) + 7) / 8 * 8);
}

// body(i) for all i < count, independent of each other.
template <class Body>
void for_elements(const std::string& label, const ExecutionSpace& space, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    constexpr std::int64_t block = 4096;
    Kokkos::parallel_for(label, RowRange(space, 0, (count + block - 1) / block), [=](std::int64_t b) {
      const std::int64_t end = b * block + block < count ? b * block + block : count;
#pragma GCC ivdep
      for (std::int64_t i = b * block; i < end; ++i) {
        body(i);
      }
    });
  } else {
    Kokkos::parallel_for(label, RowRange(space, 0, count), body);
  }
}

// body(member, row): one row is one unit of parallel work; inside, use the row_ functions.
template <class Body>
void for_rows(const std::string& label, const ExecutionSpace& space, std::int64_t rows, const Body& body) {
  if constexpr (on_host) {
    Kokkos::parallel_for(label, RowRange(space, 0, rows), [=](std::int64_t row) { body(HostMember{}, row); });
  } else {
    Kokkos::parallel_for(
        label, TeamPolicy(space, static_cast<int>(rows), device_team_size),
        KOKKOS_LAMBDA(const TeamMember& team) { body(team, static_cast<std::int64_t>(team.league_rank())); });
  }
}

template <class Member, class Body>
KOKKOS_INLINE_FUNCTION void row_for(const Member& member, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    (void)member;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      body(i);
    }
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(member, count), body);
    member.team_barrier();
  }
}

// Sum of term(i) over i < count.
template <class T, class Member, class Term>
KOKKOS_INLINE_FUNCTION T row_sum(const Member& member, std::int64_t count, const Term& term) {
  if constexpr (on_host) {
    (void)member;
    T lanes[sum_lanes] = {};
    const std::int64_t whole = count - count % sum_lanes;
    for (std::int64_t i = 0; i < whole; i += sum_lanes) {
#pragma GCC ivdep
      for (int l = 0; l < sum_lanes; ++l) {
        lanes[l] += term(i + l);
      }
    }
    for (std::int64_t i = whole; i < count; ++i) {
      lanes[i - whole] += term(i);
    }
    for (int half = sum_lanes / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) {
        lanes[l] += lanes[l + half];
      }
    }
    return lanes[0];
  } else {
    T total = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(member, count), [&](const std::int64_t i, T& partial) { partial += term(i); }, total);
    member.team_barrier();
    return total;
  }
}

// Largest term(i) over i < count; `lowest` for count = 0.
template <class T, class Member, class Term>
KOKKOS_INLINE_FUNCTION T row_max(const Member& member, std::int64_t count, T lowest, const Term& term) {
  if constexpr (on_host) {
    (void)member;
    T lanes[sum_lanes];
    for (T& lane : lanes) {
      lane = lowest;
    }
    const std::int64_t whole = count - count % sum_lanes;
    for (std::int64_t i = 0; i < whole; i += sum_lanes) {
#pragma GCC ivdep
      for (int l = 0; l < sum_lanes; ++l) {
        const T value = term(i + l);
        lanes[l] = lanes[l] < value ? value : lanes[l];
      }
    }
    for (std::int64_t i = whole; i < count; ++i) {
      const T value = term(i);
      lanes[0] = lanes[0] < value ? value : lanes[0];
    }
    T result = lowest;
    for (const T lane : lanes) {
      result = result < lane ? lane : result;
    }
    return result;
  } else {
    T result = lowest;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(member, count),
        [&](const std::int64_t i, T& partial) {
          const T value = term(i);
          partial = partial < value ? value : partial;
        },
        Kokkos::Max<T>(result));
    member.team_barrier();
    return result;
  }
}

// body(first, width) for groups of adjacent columns. Whoever has a group walks all rows, so sums over rows need no atomics.
inline constexpr int column_group = on_host ? 64 : 1;

template <class Body>
void for_column_groups(const std::string& label, const ExecutionSpace& space, std::int64_t columns, const Body& body) {
  const std::int64_t groups = (columns + column_group - 1) / column_group;
  Kokkos::parallel_for(
      label, RowRange(space, 0, groups), KOKKOS_LAMBDA(const std::int64_t group) {
        const std::int64_t first = group * column_group;
        const std::int64_t width = columns - first < column_group ? columns - first : column_group;
        body(first, width);
      });
}

// sums[j] = sum over rows of term(row, j) for j < width, in blocks of rows, to keep rounding errors of long sums small.
template <class T, class Term>
KOKKOS_INLINE_FUNCTION void sum_rows(T (&sums)[column_group], std::int64_t rows, std::int64_t width, const Term& term) {
  constexpr std::int64_t block = 64;
  for (T& value : sums) {
    value = 0;
  }
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t end = first + block < rows ? first + block : rows;
    T partial[column_group] = {};
    for (std::int64_t row = first; row < end; ++row) {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < width; ++j) {
        partial[j] += term(row, j);
      }
    }
    for (int j = 0; j < column_group; ++j) {
      sums[j] += partial[j];
    }
  }
}

// Element (row, column) of a matrix by pointer arithmetic: the compiler sees unit stride.
template <class T>
KOKKOS_INLINE_FUNCTION T* row_pointer(const Matrix<T>& matrix, std::int64_t row) {
  return matrix.data() + row * static_cast<std::int64_t>(matrix.extent(1));
}

}  // namespace minipipe::core
