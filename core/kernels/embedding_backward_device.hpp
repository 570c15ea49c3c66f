#pragma once

#include "core/kernels/loops.hpp"

namespace minipipe::core {

// A token's rows belong to one of so many teams for each block of columns.
inline constexpr int token_buckets = 128;
inline constexpr int token_columns = 128;
// Rows whose tokens a team holds at a time, and the pieces in which its threads look through them.
inline constexpr int token_window = 2048;
inline constexpr int token_pieces = 128;

// In a team's scratch: the tokens of the rows of a window, those of the rows that are the team's, in ascending order, and how
// many of these each piece has.
struct TokenWindow {
  std::int32_t *tokens, *rows, *counts;

  static constexpr int elements = 2 * token_window + token_pieces;
  KOKKOS_INLINE_FUNCTION explicit TokenWindow(std::int32_t* memory)
      : tokens(memory), rows(tokens + token_window), counts(rows + token_window) {}

  // Fills it with `count` tokens; the result is the number of rows of `bucket`. All of the team must be here before others
  // than those of the last window may be overwritten.
  KOKKOS_INLINE_FUNCTION int fill(const TeamMember& team, const std::int32_t* from, std::int64_t count, int bucket) const {
    const int pieces = token_pieces, piece = token_window / pieces;
    const TokenWindow w = *this;
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [=](const std::int64_t i) { w.tokens[i] = from[i]; });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, pieces), [=](const int p) {
      int found = 0;
      for (int i = p * piece; i < (p + 1) * piece && i < count; ++i) found += w.tokens[i] % token_buckets == bucket;
      w.counts[p] = found;
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, pieces), [=](const int p) {
      int place = 0;
      for (int before = 0; before < p; ++before) place += w.counts[before];
      for (int i = p * piece; i < (p + 1) * piece && i < count; ++i) {
        if (w.tokens[i] % token_buckets == bucket) w.rows[place++] = i;
      }
    });
    team.team_barrier();
    int total = 0;
    for (int p = 0; p < pieces; ++p) total += w.counts[p];
    return total;
  }
};

// Adds column c of rows rows[0 .. count) of `source` [., columns] to that of their tokens' rows of `target` one by one, but
// loads many at a time. Nobody else may touch these elements of `target`.
template <class T, class C = Compute<T>>
KOKKOS_INLINE_FUNCTION void add_token_rows(C* target, const T* source, std::int64_t columns, std::int64_t c,
                                           const TokenWindow& w, int count) {
  constexpr int at_once = 8;
  for (int first = 0; first < count; first += at_once) {
    const int width = count - first < at_once ? count - first : at_once;
    std::int32_t tokens[at_once];
    C values[at_once], sums[at_once];
    for (int k = 0; k < at_once; ++k) {
      const std::int32_t row = w.rows[first + (k < width ? k : 0)];
      tokens[k] = w.tokens[row];
      values[k] = source[row * columns + c];
      sums[k] = target[tokens[k] * columns + c];
    }
    for (int k = 0; k < at_once; ++k) {
      // If the token was there already, what memory held is out of date.
      for (int earlier = 0; earlier < k; ++earlier) sums[k] = tokens[earlier] == tokens[k] ? sums[earlier] : sums[k];
      sums[k] += values[k];
    }
    for (int k = 0; k < at_once; ++k) {
      if (k < width) target[tokens[k] * columns + c] = sums[k];
    }
  }
}

// token_gradient[tokens[row], :] += output_gradient[row, :], rows that share a token in ascending order. Each team looks
// through all tokens for those of its bucket, so there is nothing to sort in memory; threads lie along the columns.
template <class T>
void add_token_rows_on_device(const ExecutionSpace& space, Matrix<Compute<T>> token_gradient, ConstMatrix<T> output_gradient,
                              ConstMatrix<std::int32_t> tokens) {
  const std::int64_t rows = static_cast<std::int64_t>(output_gradient.extent(0));
  const std::int64_t columns = static_cast<std::int64_t>(output_gradient.extent(1));
  const auto blocks = static_cast<int>((columns + token_columns - 1) / token_columns);
  const int bytes = scratch_bytes<std::int32_t>(TokenWindow::elements);
  TeamPolicy policy(space, blocks * token_buckets, token_columns);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for(
      "minipipe::embedding::backward_tokens", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const TokenWindow window(static_cast<std::int32_t*>(team.team_scratch(0).get_shmem(bytes)));
        const int bucket = team.league_rank() / blocks;
        const std::int64_t first_column = static_cast<std::int64_t>(team.league_rank() % blocks) * token_columns;
        Compute<T>* const target = token_gradient.data();
        const int width = token_columns;
        for (std::int64_t first = 0; first < rows; first += token_window) {
          const std::int64_t count = rows - first < token_window ? rows - first : token_window;
          const int found = window.fill(team, tokens.data() + first, count, bucket);
          const T* const source = output_gradient.data() + first * columns;
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, width), [=](const int j) {
            if (first_column + j < columns) add_token_rows<T>(target, source, columns, first_column + j, window, found);
          });
          team.team_barrier();
        }
      });
}

}  // namespace minipipe::core
