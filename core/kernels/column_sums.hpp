#pragma once

#include "core/kernels/pack_loops.hpp"

// Sums over the rows of a matrix, one for each column, in an order that the sizes alone fix.
namespace minipipe::core {

// ---- device -----------------------------------------------------------------------------------------------------------------

// Threads of a team. Twice as many would leave a GPU's thread 64 registers, of which terms of many sums need more.
inline constexpr int column_team = 512;

// Adjacent columns of a team. A whole line of the cache where that gives every multiprocessor a team; of a narrow matrix as few
// as share what memory hands out at least, 32 bytes: then many teams have it, and no second pass has to join parts of columns.
inline int columns_of_team(std::int64_t columns) {
  constexpr std::int64_t many_teams = 128;
  int width = 32;
  while (width > 8 && columns < many_teams * width) width /= 2;
  return width;
}

// take(c, sums) once for each column c, where sums[s] is the sum over the rows of what term(OneLane{}, row, c, sums) adds to
// sums[s]. Each thread takes every n-th row of a column, some at a time, so that loads do not wait for each other; a tree joins
// the threads.
template <class C, int Sums, class Term, class Take>
void sum_columns_on_device(const std::string& label, const ExecutionSpace& space, std::int64_t rows, std::int64_t columns,
                           const Term& term, const Take& take) {
  constexpr int at_once = 8;
  const int width = columns_of_team(columns), height = column_team / width, threads = width * height;
  const int bytes = scratch_bytes<C>(Sums * column_team);
  TeamPolicy policy(space, static_cast<int>((columns + width - 1) / width), column_team);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(
      label, policy, KOKKOS_LAMBDA(const TeamMember& team) {
        C* const parts = static_cast<C*>(team.team_scratch(0).get_shmem(bytes));  // [Sums, height, width]
        const std::int64_t first = static_cast<std::int64_t>(team.league_rank()) * width;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, threads), [&](const int i) {
          const std::int64_t c = first + i % width;
          C totals[Sums] = {};
          if (c < columns) {
            std::int64_t row = i / width;
            for (; row + (at_once - 1) * height < rows; row += at_once * height) {
              // Blocks of rows keep rounding errors of long sums small.
              C block[Sums] = {};
              MINIPIPE_UNROLL(8)
              for (int k = 0; k < at_once; ++k) term(OneLane{}, row + k * height, c, block);
              for (int s = 0; s < Sums; ++s) totals[s] += block[s];
            }
            for (; row < rows; row += height) term(OneLane{}, row, c, totals);
          }
          for (int s = 0; s < Sums; ++s) parts[s * threads + i] = totals[s];
        });
        team.team_barrier();
        for (int half = height / 2; half > 0; half /= 2) {
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, half * width), [&](const int i) {
            for (int s = 0; s < Sums; ++s) parts[s * threads + i] += parts[s * threads + i + half * width];
          });
          team.team_barrier();
        }
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [&](const int i) {
          C sums[Sums];
          for (int s = 0; s < Sums; ++s) sums[s] = parts[s * threads + i];
          if (first + i < columns) take(first + i, sums);
        });
      });
}

// ---- both -------------------------------------------------------------------------------------------------------------------

template <class C, int Sums>
struct ColumnTargets {
  C* of[Sums];
};

// Adds to targets.of[s][c] the sum over the rows of what term(lanes, row, c, sums) adds to sums[s], for all columns c. `lanes`
// are those of a pack on the host, OneLane on a device; elements of `sums` are what they load.
template <class C, int Sums, class Term>
void add_column_sums(const std::string& label, const ExecutionSpace& space, std::int64_t rows, std::int64_t columns,
                     const Term& term, const ColumnTargets<C, Sums>& targets) {
  if constexpr (on_host) {
    for_column_groups(label, space, columns, [=](const std::int64_t first, const std::int64_t width) {
      add_group_sums<C, Sums>(rows, first, width, term, targets.of);
    });
  } else {
    sum_columns_on_device<C, Sums>(
        label, space, rows, columns, term, KOKKOS_LAMBDA(const std::int64_t c, const C* sums) {
          for (int s = 0; s < Sums; ++s) targets.of[s][c] += sums[s];
        });
  }
}

}  // namespace minipipe::core
