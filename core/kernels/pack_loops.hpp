#pragma once

#include "core/kernels/pack_memory.hpp"

// Loops of kernels on packs. A body is a template over `Lanes` (pack_memory.hpp).
namespace minipipe::core {

// body(lanes, i) for all first <= i < end, a pack at a time on the host; only there.
template <class C, class Body>
inline void each_pack(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + pack_size<C> <= end; i += pack_size<C>) body(WholePack{}, i);
  if (i < end) body(PartOfPack{static_cast<int>(end - i)}, i);
}

// body(lanes, i, part): the same, the packs going round `Parts` parts, each of which is a chain of operations of its own.
template <class C, int Parts, class Body>
inline void each_pack_in_parts(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + Parts * pack_size<C> <= end; i += Parts * pack_size<C>) {
    MINIPIPE_UNROLL(8)
    for (int part = 0; part < Parts; ++part) body(WholePack{}, i + part * pack_size<C>, part);
  }
  each_pack<C>(
      i, end, [&](const auto& lanes, std::int64_t place) { body(lanes, place, static_cast<int>((place - i) / pack_size<C>)); });
}

// operation(k) for all k < Count.
template <int Count, class Operation>
[[gnu::always_inline]] inline void each_of(const Operation& operation) {
  MINIPIPE_UNROLL(8)
  for (int k = 0; k < Count; ++k) operation(k);
}

// body(lanes, i, count) for all first <= i < end: `Count` packs at a time from place i on, and what is left one by one; `count`
// is a constant.
template <class C, int Count, class Body>
inline void each_few_packs(std::int64_t first, std::int64_t end, const Body& body) {
  std::int64_t i = first;
  for (; i + Count * pack_size<C> <= end; i += Count * pack_size<C>) {
    body(WholePack{}, i, std::integral_constant<int, Count>{});
  }
  each_pack<C>(i, end, [&](const auto& lanes, std::int64_t place) { body(lanes, place, std::integral_constant<int, 1>{}); });
}

// body(lanes, i) covers all i < count, independent of each other.
template <class C, class Body>
void for_packs(const std::string& label, const ExecutionSpace& space, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    constexpr std::int64_t block = 4096;
    Kokkos::parallel_for(label, RowRange(space, 0, (count + block - 1) / block), [=](std::int64_t b) {
      each_pack<C>(b * block, b * block + block < count ? b * block + block : count, body);
    });
  } else {
    Kokkos::parallel_for(
        label, RowRange(space, 0, count), KOKKOS_LAMBDA(const std::int64_t i) { body(OneLane{}, i); });
  }
}

// body(lanes, c) covers the columns of a row inside for_rows.
template <class C, class Member, class Body>
KOKKOS_INLINE_FUNCTION void row_packs(const Member& member, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    (void)member;
    each_pack<C>(0, count, body);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(member, count), [&](const std::int64_t c) { body(OneLane{}, c); });
    member.team_barrier();
  }
}

// ---- several rows or columns at a time, on the host -----------------------------------------------------------------------

// Sums over one row take long to come out of the pipeline; `Count` rows side by side fill it. A row's result does not depend on
// its neighbours. body(count, first): `count` is a constant, `first` the first of as many rows.
template <int Count, class Body>
void for_row_groups(const std::string& label, const ExecutionSpace& space, std::int64_t rows, const Body& body) {
  Kokkos::parallel_for(label, RowRange(space, 0, (rows + Count - 1) / Count), [=](std::int64_t group) {
    const std::int64_t first = group * Count;
    if (first + Count <= rows) {
      body(std::integral_constant<int, Count>{}, first);
    } else {
      for (std::int64_t row = first; row < rows; ++row) body(std::integral_constant<int, 1>{}, row);
    }
  });
}

// The same with as many rows as fill it: short rows are more at a time, with a sum each in half the registers.
inline constexpr std::int64_t short_row = 256;
template <class Body>
void for_row_groups(const std::string& label, const ExecutionSpace& space, std::int64_t rows, std::int64_t columns,
                    const Body& body) {
  if (columns <= short_row) {
    for_row_groups<vector_registers / 2>(label, space, rows, body);
  } else {
    for_row_groups<4>(label, space, rows, body);
  }
}

// body(first, count) for blocks of rows, one for each thread. A row's result must not depend on where its block begins.
template <class Body>
void for_row_blocks(const std::string& label, const ExecutionSpace& space, std::int64_t rows, const Body& body) {
  const std::int64_t threads = space.concurrency(), height = (rows + threads - 1) / threads;
  if (rows == 0) return;
  Kokkos::parallel_for(label, RowRange(space, 0, (rows + height - 1) / height), [=](std::int64_t block) {
    const std::int64_t first = block * height;
    body(first, first + height < rows ? height : rows - first);
  });
}

// How far ahead a term below fetches its row: columns of a few packs change the page every few rows, which processors do not
// foresee.
inline constexpr int rows_ahead = 16;

// Adds to targets[s][c] the sums over the rows of what term(lanes, row, c, sums) adds to sums[s]: in blocks of rows, to keep
// rounding errors of long sums small.
template <class C, int Sums, int Packs, class Lanes, class Term>
inline void add_row_sums(const Lanes& lanes, std::int64_t rows, std::int64_t column, const Term& term,
                         C* const (&targets)[Sums]) {
  constexpr std::int64_t block = 64;
  Pack<C> totals[Packs][Sums] = {};
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t end = first + block < rows ? first + block : rows;
    Pack<C> partial[Packs][Sums] = {};
    for (std::int64_t row = first; row < end; ++row) {
      for (int p = 0; p < Packs; ++p) term(lanes, row, column + p * pack_size<C>, partial[p]);
    }
    for (int p = 0; p < Packs; ++p) {
      for (int s = 0; s < Sums; ++s) totals[p][s] += partial[p][s];
    }
  }
  for (int p = 0; p < Packs; ++p) {
    for (int s = 0; s < Sums; ++s) {
      C* const target = targets[s] + column + p * pack_size<C>;
      lanes.store(target, lanes.load(target) + totals[p][s]);
    }
  }
}

// The same for the columns first .. first + width - 1 of a group of for_column_groups.
template <class C, int Sums, class Term>
inline void add_group_sums(std::int64_t rows, std::int64_t first, std::int64_t width, const Term& term,
                           C* const (&targets)[Sums]) {
  // As many packs side by side as fill half the registers with sums.
  constexpr int fitting = vector_registers / 2 / Sums, whole = column_group / pack_size<C>,
                packs = fitting < whole ? fitting : whole;
  if (width == column_group) {
    for (int p = 0; p < whole; p += packs) {
      add_row_sums<C, Sums, packs>(WholePack{}, rows, first + p * pack_size<C>, term, targets);
    }
  } else {
    each_pack<C>(first, first + width,
                 [&](const auto& lanes, std::int64_t c) { add_row_sums<C, Sums, 1>(lanes, rows, c, term, targets); });
  }
}

}  // namespace minipipe::core
