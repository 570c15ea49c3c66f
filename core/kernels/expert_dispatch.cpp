#include "core/kernels/expert_dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/kernels/loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// Rows counted by one thread. What it counts waits for memory, which many threads hide.
constexpr std::int64_t row_block = on_host ? 64 : 4;

std::int64_t row_blocks(std::int64_t rows) { return (rows + row_block - 1) / row_block; }

bool fits_plan(const ExpertPlan& plan, std::int64_t rows, std::int64_t choices) {
  return extent(plan.slots, 0) == rows * choices && plan.pairs.extent(0) == plan.slots.extent(0) &&
         plan.offsets.extent(0) == plan.counts.extent(0) + 1;
}

// target[c] = (accumulate ? target[c] : 0) + sum over a row's choices, in order, of weight times the slot's row of `values`.
// No weights: all are one.
template <class T, class Member>
KOKKOS_INLINE_FUNCTION void sum_slots(const Member& member, T* target, bool accumulate, std::int64_t columns, const T* values,
                                      const std::int32_t* slots, const Compute<T>* weights, std::int64_t choices) {
  using C = Compute<T>;
  if constexpr (on_host && std::is_same_v<T, C>) {
    // Choices outside: the loops over columns become vector code.
    if (!accumulate) {
      row_for(member, columns, [=](const std::int64_t c) { target[c] = 0; });
    }
    for (std::int64_t i = 0; i < choices; ++i) {
      if (slots[i] >= 0) {
        const T* source = values + slots[i] * columns;
        const T weight = weights != nullptr ? weights[i] : T(1);
        row_for(member, columns, [=](const std::int64_t c) { target[c] += weight * source[c]; });
      }
    }
  } else {
    row_for(member, columns, [=](const std::int64_t c) {
      C sum = accumulate ? static_cast<C>(target[c]) : C(0);
      for (std::int64_t i = 0; i < choices; ++i) {
        if (slots[i] >= 0) {
          sum += (weights != nullptr ? weights[i] : C(1)) * static_cast<C>(values[slots[i] * columns + c]);
        }
      }
      target[c] = sum;
    });
  }
}

}  // namespace

std::int64_t expert_capacity(double factor, std::int64_t rows, std::int64_t choices, std::int64_t experts) {
  const double share = factor * static_cast<double>(rows * choices) / static_cast<double>(experts);
  // A product such as 1.1 * 30 / 3, rounded up by its last bit, is not one more.
  // More than all rows is no limit, and may not fit an integer.
  constexpr double most = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int64_t>(std::ceil(std::min(share * (1 - 1e-12), most)));
}

std::int64_t expert_workspace(std::int64_t rows, std::int64_t experts) { return (row_blocks(rows) + 1) * experts; }

// A counting sort: each block of rows counts its pairs per expert; the running sum over (expert, block) tells where the pairs
// of a block start, and the block hands out these places in the order of its rows. parallel_scan splits its range by the number
// of threads, but sums of integers are the same however they are split.
void plan_experts(const ExecutionSpace& space, const ExpertPlan& plan, Vector<std::int32_t> workspace,
                  ConstMatrix<std::int32_t> experts, std::int64_t capacity) {
  const std::int64_t rows = extent(experts, 0), choices = extent(experts, 1), count = extent(plan.counts, 0);
  const std::int64_t blocks = row_blocks(rows);
  const std::int32_t limit = capacity > 0 && capacity < rows ? static_cast<std::int32_t>(capacity) : INT32_MAX;
  require_shape(count >= 1 && fits_plan(plan, rows, choices) && extent(workspace, 0) >= expert_workspace(rows, count) &&
                    rows * choices < INT32_MAX && capacity >= 0,
                "plan_experts");
  const Vector<std::int32_t> counts = plan.counts, offsets = plan.offsets, slots = plan.slots, pairs = plan.pairs;
  const Vector<std::int32_t> places = slice(workspace, 0, blocks * count);  // [E, blocks]
  const Vector<std::int32_t> starts = slice(workspace, blocks * count, count);
  Kokkos::parallel_for(
      "minipipe::expert_dispatch::count", RowRange(space, 0, blocks), KOKKOS_LAMBDA(const std::int64_t block) {
        for (std::int64_t e = 0; e < count; ++e) {
          places(e * blocks + block) = 0;
        }
        const std::int64_t end = (block + 1) * row_block < rows ? (block + 1) * row_block : rows;
        for (std::int64_t pair = block * row_block * choices; pair < end * choices; ++pair) {
          ++places(experts.data()[pair] * blocks + block);
          pairs(pair) = -1;
        }
      });
  Kokkos::parallel_scan(
      "minipipe::expert_dispatch::places", RowRange(space, 0, blocks * count),
      KOKKOS_LAMBDA(const std::int64_t i, std::int32_t& before, const bool last) {
        const std::int32_t here = places(i);
        if (last) {
          places(i) = before;
        }
        before += here;
      });
  // Where each expert starts if nothing is dropped.
  const auto all = static_cast<std::int32_t>(rows * choices);
  Kokkos::parallel_for(
      "minipipe::expert_dispatch::counts", RowRange(space, 0, count), KOKKOS_LAMBDA(const std::int64_t e) {
        const std::int32_t start = blocks > 0 ? places(e * blocks) : 0;
        starts(e) = start;
        counts(e) = (e + 1 < count && blocks > 0 ? places((e + 1) * blocks) : all) - start;
      });
  Kokkos::parallel_scan(
      "minipipe::expert_dispatch::offsets", RowRange(space, 0, count),
      KOKKOS_LAMBDA(const std::int64_t e, std::int32_t& before, const bool last) {
        const std::int32_t kept = counts(e) < limit ? counts(e) : limit;
        if (last) {
          offsets(e) = before;
          if (e + 1 == count) {
            offsets(count) = before + kept;
          }
        }
        before += kept;
      });
  Kokkos::parallel_for(
      "minipipe::expert_dispatch::assign", RowRange(space, 0, blocks), KOKKOS_LAMBDA(const std::int64_t block) {
        const std::int64_t end = (block + 1) * row_block < rows ? (block + 1) * row_block : rows;
        for (std::int64_t pair = block * row_block * choices; pair < end * choices; ++pair) {
          const std::int32_t expert = experts.data()[pair];
          const std::int32_t rank = places(expert * blocks + block)++ - starts(expert);
          const std::int32_t slot = rank < limit ? offsets(expert) + rank : -1;
          slots(pair) = slot;
          if (slot >= 0) {
            pairs(slot) = static_cast<std::int32_t>(pair);
          }
        }
      });
}

void read_offsets(const ExecutionSpace& space, std::vector<std::int32_t>& host, ConstVector<std::int32_t> offsets) {
  host.resize(offsets.extent(0));
  if constexpr (on_host) {
    fence(space, "before the host reads the offsets of the experts, because kernels write them");
    std::copy_n(offsets.data(), host.size(), host.begin());
  } else {
    const Kokkos::View<std::int32_t*, Kokkos::LayoutRight, HostSpace, Unmanaged> target(host.data(), host.size());
    Kokkos::deep_copy(space, target, offsets);
    fence(space, "before the host reads the offsets of the experts, because the copy is asynchronous");
  }
}

template <class T>
void gather_rows(const ExecutionSpace& space, Matrix<T> gathered, ConstMatrix<T> input, const ExpertPlan& plan) {
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1), total = extent(gathered, 0);
  const std::int64_t choices = rows > 0 ? total / rows : 1;
  require_shape(fits_plan(plan, rows, choices) && total == rows * choices && extent(gathered, 1) == columns, "gather_rows");
  const ConstVector<std::int32_t> pairs = plan.pairs;
  for_rows(
      "minipipe::expert_dispatch::gather", space, total, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t slot) {
        const std::int32_t pair = pairs(slot);
        if (pair >= 0) {
          const T* source = row_pointer(input, pair / choices);
          T* target = row_pointer(gathered, slot);
          row_for(member, columns, [=](const std::int64_t c) { target[c] = source[c]; });
        }
      });
}

template <class T>
void gather_rows_backward(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> gathered_gradient,
                          const ExpertPlan& plan, bool accumulate) {
  const std::int64_t rows = extent(input_gradient, 0), columns = extent(input_gradient, 1);
  const std::int64_t total = extent(gathered_gradient, 0), choices = rows > 0 ? total / rows : 1;
  require_shape(fits_plan(plan, rows, choices) && total == rows * choices && extent(gathered_gradient, 1) == columns,
                "gather_rows_backward");
  const ConstVector<std::int32_t> slots = plan.slots;
  for_rows(
      "minipipe::expert_dispatch::gather_backward", space, rows,
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        sum_slots<T>(member, row_pointer(input_gradient, row), accumulate, columns, gathered_gradient.data(),
                     slots.data() + row * choices, nullptr, choices);
      });
}

template <class T>
void combine_rows(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<T> expert_out, ConstMatrix<Compute<T>> weights,
                  const ExpertPlan& plan) {
  const std::int64_t rows = extent(out, 0), columns = extent(out, 1), choices = extent(weights, 1);
  require_shape(fits_plan(plan, rows, choices) && extent(weights, 0) == rows && extent(expert_out, 0) == rows * choices &&
                    extent(expert_out, 1) == columns,
                "combine_rows");
  const ConstVector<std::int32_t> slots = plan.slots;
  for_rows(
      "minipipe::expert_dispatch::combine", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        sum_slots<T>(member, row_pointer(out, row), false, columns, expert_out.data(), slots.data() + row * choices,
                     row_pointer(weights, row), choices);
      });
}

template <class T>
void combine_rows_backward(const ExecutionSpace& space, Matrix<T> expert_out_gradient, Matrix<Compute<T>> weights_gradient,
                           ConstMatrix<T> output_gradient, ConstMatrix<T> expert_out, ConstMatrix<Compute<T>> weights,
                           const ExpertPlan& plan) {
  using C = Compute<T>;
  const std::int64_t rows = extent(output_gradient, 0), columns = extent(output_gradient, 1), choices = extent(weights, 1);
  require_shape(fits_plan(plan, rows, choices) && extent(weights, 0) == rows && extent(expert_out, 0) == rows * choices &&
                    extent(expert_out, 1) == columns && extent(expert_out_gradient, 0) == rows * choices &&
                    extent(expert_out_gradient, 1) == columns && extent(weights_gradient, 0) == rows &&
                    extent(weights_gradient, 1) == choices,
                "combine_rows_backward");
  const ConstVector<std::int32_t> slots = plan.slots;
  for_rows(
      "minipipe::expert_dispatch::combine_backward", space, rows * choices,
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t pair) {
        const std::int32_t slot = slots(pair);
        C along = 0;
        if (slot >= 0) {
          const T* gradient = row_pointer(output_gradient, pair / choices);
          const T* source = row_pointer(expert_out, slot);
          T* target = row_pointer(expert_out_gradient, slot);
          const C weight = weights.data()[pair];
          along = row_sum<C>(member, columns,
                             [=](const std::int64_t c) { return static_cast<C>(gradient[c]) * static_cast<C>(source[c]); });
          row_for(member, columns, [=](const std::int64_t c) { target[c] = weight * static_cast<C>(gradient[c]); });
        }
        row_for(member, 1, [=](const std::int64_t) { weights_gradient.data()[pair] = along; });
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                                \
  template void gather_rows<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, const ExpertPlan&);                           \
  template void gather_rows_backward<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, const ExpertPlan&, bool);            \
  template void combine_rows<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<Compute<T>>, const ExpertPlan&); \
  template void combine_rows_backward<T>(const ExecutionSpace&, Matrix<T>, Matrix<Compute<T>>, ConstMatrix<T>, ConstMatrix<T>, \
                                         ConstMatrix<Compute<T>>, const ExpertPlan&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
