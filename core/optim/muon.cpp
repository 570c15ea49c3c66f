#include "core/optim/muon.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/reduce.hpp"
#include "core/kernels/shape.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

constexpr double newton_schulz_a = 3.4445, newton_schulz_b = -4.7750, newton_schulz_c = 2.0315;

// Sizes in elements. Pieces start at multiples of 16, so that products do not depend on what lies before an operand.
struct Sizes {
  std::size_t matrix = 0, square = 0, sums = 0;

  explicit Sizes(std::span<const MuonMatrix> matrices) {
    const auto padded = [](std::int64_t count) { return static_cast<std::size_t>((count + 15) / 16 * 16); };
    for (const MuonMatrix& m : matrices) {
      const std::int64_t side = std::min(m.rows, m.columns);
      matrix = std::max(matrix, padded(m.rows * m.columns));
      square = std::max(square, padded(side * side));
    }
    if (matrix > 0) sums = 1 + static_cast<std::size_t>(sum_workspace(static_cast<std::int64_t>(matrix)));
  }
  std::size_t values() const { return 2 * (matrix + square); }
};

template <class T>
void momentum(const ExecutionSpace& space, T* m, const T* gradients, T* direction, std::int64_t count, double factor,
              bool nesterov, double gradient_scale) {
  const T keep = static_cast<T>(factor), take = static_cast<T>(1 - factor), scale = static_cast<T>(gradient_scale);
  const T m_weight = nesterov ? keep : T(1), g_weight = nesterov ? take : T(0);
  for_elements(
      "minipipe::muon::momentum", space, count, KOKKOS_LAMBDA(const std::int64_t i) {
        const T g = scale * gradients[i];
        const T next = keep * m[i] + take * g;
        m[i] = next;
        direction[i] = m_weight * next + g_weight * g;
      });
}

// x /= ||x||, with the square of the norm in device memory. Zero stays zero.
template <class T>
void normalise(const ExecutionSpace& space, const Vector<T>& x, const Vector<double>& square) {
  T* const values = x.data();
  for_elements(
      "minipipe::muon::normalise", space, extent(x, 0),
      KOKKOS_LAMBDA(const std::int64_t i) { values[i] *= static_cast<T>(1 / (square_root(square(0)) + 1e-7)); });
}

// polynomial = b gram + a identity, [side, side].
template <class T>
void start_polynomial(const ExecutionSpace& space, const Matrix<T>& polynomial, const Matrix<T>& gram) {
  const std::int64_t side = extent(gram, 0);
  const T a = static_cast<T>(newton_schulz_a), b = static_cast<T>(newton_schulz_b);
  for_rows(
      "minipipe::muon::polynomial", space, side, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* const out = row_pointer(polynomial, row);
        const T* const in = row_pointer(gram, row);
        row_for(member, side, [=](const std::int64_t j) { out[j] = b * in[j] + (j == row ? a : T(0)); });
      });
}

template <class T>
void apply(const ExecutionSpace& space, T* parameters, const T* direction, std::int64_t count, double rate, double decay) {
  const T step = static_cast<T>(rate), shrink = static_cast<T>(decay);
  for_elements(
      "minipipe::muon::apply", space, count,
      KOKKOS_LAMBDA(const std::int64_t i) { parameters[i] -= step * direction[i] + shrink * parameters[i]; });
}

}  // namespace

template <class T>
MuonMemory<T>::MuonMemory(std::span<const MuonMatrix> matrices)
    : matrix_(Sizes(matrices).matrix),
      square_(Sizes(matrices).square),
      values_("minipipe::muon::workspace", Sizes(matrices).values()),
      sums_("minipipe::muon::sums", Sizes(matrices).sums) {}

template <class T>
MuonWorkspace<T> MuonMemory<T>::workspace() const {
  const auto elements = [&](std::size_t offset, std::size_t count) {
    return slice<T>(values_, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(count));
  };
  const auto sums = static_cast<std::int64_t>(sums_.size());
  return {elements(0, matrix_),
          elements(matrix_, matrix_),
          elements(2 * matrix_, square_),
          elements(2 * matrix_ + square_, square_),
          slice<double>(sums_, 0, std::min<std::int64_t>(sums, 1)),
          slice<double>(sums_, std::min<std::int64_t>(sums, 1), std::max<std::int64_t>(sums - 1, 0))};
}

template <class T>
std::size_t muon_memory_bytes(std::span<const MuonMatrix> matrices) {
  const Sizes sizes(matrices);
  return sizes.values() * sizeof(T) + sizes.sums * sizeof(double);
}

template <class T>
Matrix<T> orthogonalise(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns, int steps,
                        const MuonWorkspace<T>& workspace) {
  const std::int64_t side = std::min(rows, columns);
  require_shape(rows * columns <= extent(workspace.matrix, 0) && rows * columns <= extent(workspace.product, 0) &&
                    side * side <= extent(workspace.gram, 0) && side * side <= extent(workspace.polynomial, 0),
                "orthogonalise");
  Matrix<T> x = slice_matrix<T>(workspace.matrix, 0, rows, columns);
  Matrix<T> next = slice_matrix<T>(workspace.product, 0, rows, columns);
  const Matrix<T> gram = slice_matrix<T>(workspace.gram, 0, side, side);
  const Matrix<T> polynomial = slice_matrix<T>(workspace.polynomial, 0, side, side);
  sum_of_squares<T>(space, workspace.norm, flatten(x), workspace.sum, false);
  normalise<T>(space, flatten(x), workspace.norm);
  const bool tall = rows > columns;
  for (int step = 0; step < steps; ++step) {
    gemm<T>(space, tall, !tall, T(1), x, x, T(0), gram);
    start_polynomial<T>(space, polynomial, gram);
    gemm<T>(space, false, false, static_cast<T>(newton_schulz_c), gram, gram, T(1), polynomial);
    if (tall) {
      gemm<T>(space, false, false, T(1), x, polynomial, T(0), next);
    } else {
      gemm<T>(space, false, false, T(1), polynomial, x, T(0), next);
    }
    std::swap(x, next);
  }
  return x;
}

template <class T>
void muon_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, ConstVector<T> gradients,
                 std::span<const MuonMatrix> matrices, const MuonOptions& options, double weight_decay, double learning_rate,
                 double gradient_scale, const MuonWorkspace<T>& workspace) {
  const std::int64_t size = extent(parameters, 0);
  const std::int64_t trained_size = std::min(extent(first_moment, 0), extent(gradients, 0));
  for (const MuonMatrix& matrix : matrices) {
    const std::int64_t count = matrix.rows * matrix.columns;
    const std::int64_t trained = matrix.trained < 0 ? matrix.offset : matrix.trained;
    require_shape(matrix.offset >= 0 && matrix.rows > 0 && matrix.columns > 0 && matrix.offset + count <= size &&
                      trained + count <= trained_size && count <= extent(workspace.matrix, 0),
                  "muon_update");
    momentum<T>(space, first_moment.data() + trained, gradients.data() + trained, workspace.matrix.data(), count,
                options.momentum, options.nesterov, gradient_scale);
    const Matrix<T> direction = orthogonalise<T>(space, matrix.rows, matrix.columns, options.newton_schulz_steps, workspace);
    const double ratio = static_cast<double>(matrix.rows) / static_cast<double>(matrix.columns);
    apply<T>(space, parameters.data() + matrix.offset, direction.data(), count, learning_rate * std::sqrt(std::max(1.0, ratio)),
             matrix.decay ? learning_rate * weight_decay : 0.0);
  }
}

#define MINIPIPE_INSTANTIATE(T)                                                                                          \
  template class MuonMemory<T>;                                                                                          \
  template std::size_t muon_memory_bytes<T>(std::span<const MuonMatrix>);                                                \
  template Matrix<T> orthogonalise<T>(const ExecutionSpace&, std::int64_t, std::int64_t, int, const MuonWorkspace<T>&);  \
  template void muon_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, ConstVector<T>, std::span<const MuonMatrix>, \
                               const MuonOptions&, double, double, double, const MuonWorkspace<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
