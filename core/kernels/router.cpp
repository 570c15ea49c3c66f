#include "core/kernels/router.hpp"

#include "core/kernels/column_sums.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// Index of the largest of `count` logits that is not among the first `taken` of `chosen`; ties go to the lower index.
template <class T>
KOKKOS_INLINE_FUNCTION std::int32_t largest_left(const T* logits, std::int32_t count, const std::int32_t* chosen, int taken) {
  std::int32_t best = -1;
  T largest = 0;
  for (std::int32_t e = 0; e < count; ++e) {
    bool free = true;
    for (int i = 0; i < taken; ++i) {
      free = free && chosen[i] != e;
    }
    // The second test lets a number replace one that is not a number, so that the index is always one of the free ones.
    if (free && (best < 0 || logits[e] > largest || (largest != largest && logits[e] == logits[e]))) {
      best = e;
      largest = logits[e];
    }
  }
  return best;
}

template <class T>
struct ColumnTerm {
  const T* values;
  std::int64_t columns;

  KOKKOS_INLINE_FUNCTION void operator()(const OneLane&, std::int64_t row, std::int64_t c, T (&sums)[1]) const {
    sums[0] += values[row * columns + c];
  }
};

// means[c] = the mean of column c; 0 without rows.
template <class T>
void column_means(const ExecutionSpace& space, Vector<T> means, ConstMatrix<T> matrix) {
  const char* const label = "minipipe::router::mean";
  const std::int64_t rows = extent(matrix, 0), columns = extent(matrix, 1);
  const T* const values = matrix.data();
  if constexpr (on_host) {
    for_column_groups(label, space, columns, [=](const std::int64_t first, const std::int64_t width) {
      const T* const v = values + first;
      T sums[column_group];
      sum_rows(sums, rows, width, [=](const std::int64_t row, const std::int64_t j) { return v[row * columns + j]; });
      for (std::int64_t j = 0; j < width; ++j) {
        means(first + j) = rows > 0 ? sums[j] / static_cast<T>(rows) : T(0);
      }
    });
  } else {
    sum_columns_on_device<T, 1>(
        label, space, rows, columns, ColumnTerm<T>{values, columns},
        KOKKOS_LAMBDA(const std::int64_t c, const T* sums) { means(c) = rows > 0 ? sums[0] / static_cast<T>(rows) : T(0); });
  }
}

}  // namespace

template <class T>
void router_forward(const ExecutionSpace& space, Matrix<std::int32_t> experts, Matrix<T> weights, Matrix<T> probabilities,
                    ConstMatrix<T> logits, RouterWeights kind) {
  const std::int64_t rows = extent(logits, 0), count = extent(logits, 1), choices = extent(experts, 1);
  require_shape(extent(experts, 0) == rows && choices >= 1 && choices <= count && extent(weights, 0) == rows &&
                    extent(weights, 1) == choices && extent(probabilities, 0) == rows && extent(probabilities, 1) == count,
                "router_forward");
  const bool normalised = kind == RouterWeights::normalised;
  // One thread per row: the rows are short, and the choice is a chain of comparisons.
  Kokkos::parallel_for(
      "minipipe::router::forward", RowRange(space, 0, rows), KOKKOS_LAMBDA(const std::int64_t row) {
        const T* z = row_pointer(logits, row);
        T* p = row_pointer(probabilities, row);
        std::int32_t* chosen = row_pointer(experts, row);
        T* w = row_pointer(weights, row);
        for (int i = 0; i < choices; ++i) {
          chosen[i] = largest_left(z, static_cast<std::int32_t>(count), chosen, i);
        }
        const T largest = z[chosen[0]];
        T total = 0;
        for (std::int64_t e = 0; e < count; ++e) {
          p[e] = exponential(z[e] - largest);
          total += p[e];
        }
        T chosen_total = 0;
        for (int i = 0; i < choices; ++i) {
          w[i] = p[chosen[i]];
          chosen_total += w[i];
        }
        for (int i = 0; i < choices; ++i) {
          w[i] /= normalised ? chosen_total : total;
        }
        for (std::int64_t e = 0; e < count; ++e) {
          p[e] /= total;
        }
      });
}

template <class T>
void router_balance(const ExecutionSpace& space, Vector<double> loss, Vector<T> load, Vector<T> mean,
                    ConstVector<std::int32_t> counts, ConstMatrix<T> probabilities) {
  const std::int64_t count = extent(probabilities, 1);
  require_shape(extent(loss, 0) >= 1 && extent(load, 0) == count && extent(mean, 0) == count && extent(counts, 0) == count,
                "router_balance");
  column_means(space, mean, probabilities);
  Kokkos::parallel_for(
      "minipipe::router::balance", RowRange(space, 0, 1), KOKKOS_LAMBDA(const std::int64_t) {
        double pairs = 0, total = 0;
        for (std::int64_t e = 0; e < count; ++e) {
          pairs += counts(e);
        }
        for (std::int64_t e = 0; e < count; ++e) {
          const double share = pairs > 0 ? counts(e) / pairs : 0;
          load(e) = static_cast<T>(share);
          total += share * static_cast<double>(mean(e));
        }
        loss(0) = static_cast<double>(count) * total;
      });
}

template <class T>
void router_backward(const ExecutionSpace& space, Matrix<T> logits_gradient, ConstMatrix<Compute<T>> weights_gradient,
                     ConstMatrix<std::int32_t> experts, ConstMatrix<Compute<T>> weights, ConstMatrix<Compute<T>> probabilities,
                     ConstVector<Compute<T>> load, Compute<T> coefficient, RouterWeights kind) {
  using C = Compute<T>;
  const std::int64_t rows = extent(probabilities, 0), count = extent(probabilities, 1), choices = extent(experts, 1);
  const bool balance = coefficient != 0, normalised = kind == RouterWeights::normalised;
  require_shape(extent(logits_gradient, 0) == rows && extent(logits_gradient, 1) == count && extent(experts, 0) == rows &&
                    extent(weights, 0) == rows && extent(weights, 1) == choices && extent(weights_gradient, 0) == rows &&
                    extent(weights_gradient, 1) == choices && (!balance || extent(load, 0) == count),
                "router_backward");
  // d(E sum f P) / dp[r, e] = E f_e / R
  const C factor = rows > 0 ? coefficient * static_cast<C>(count) / static_cast<C>(rows) : C(0);
  Kokkos::parallel_for(
      "minipipe::router::backward", RowRange(space, 0, rows), KOKKOS_LAMBDA(const std::int64_t row) {
        T* dz = row_pointer(logits_gradient, row);
        const C* p = row_pointer(probabilities, row);
        const C* w = row_pointer(weights, row);
        const C* dw = row_pointer(weights_gradient, row);
        const std::int32_t* chosen = row_pointer(experts, row);
        C along_load = 0;
        for (std::int64_t e = 0; balance && e < count; ++e) {
          along_load += p[e] * load(e);
        }
        C along = 0;
        for (int i = 0; i < choices; ++i) {
          along += w[i] * dw[i];
        }
        // Each element is stored once, so that it is rounded once.
        for (std::int64_t e = 0; e < count; ++e) {
          C sum = balance ? factor * p[e] * (load(e) - along_load) : C(0);
          sum -= normalised ? C(0) : p[e] * along;
          for (int i = 0; i < choices; ++i) {
            sum += chosen[i] == e ? w[i] * (normalised ? dw[i] - along : dw[i]) : C(0);
          }
          dz[e] = sum;
        }
      });
}

#define MINIPIPE_INSTANTIATE_BACKWARD(T)                                                                                  \
  template void router_backward<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<Compute<T>>, ConstMatrix<std::int32_t>,  \
                                   ConstMatrix<Compute<T>>, ConstMatrix<Compute<T>>, ConstVector<Compute<T>>, Compute<T>, \
                                   RouterWeights);
#define MINIPIPE_INSTANTIATE(T)                                                                                           \
  template void router_forward<T>(const ExecutionSpace&, Matrix<std::int32_t>, Matrix<T>, Matrix<T>, ConstMatrix<T>,      \
                                  RouterWeights);                                                                         \
  template void router_balance<T>(const ExecutionSpace&, Vector<double>, Vector<T>, Vector<T>, ConstVector<std::int32_t>, \
                                  ConstMatrix<T>);                                                                        \
  MINIPIPE_INSTANTIATE_BACKWARD(T)
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE_BACKWARD(bf16)
#undef MINIPIPE_INSTANTIATE
#undef MINIPIPE_INSTANTIATE_BACKWARD

}  // namespace minipipe::core
