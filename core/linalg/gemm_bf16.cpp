#include "core/linalg/gemm_bf16.hpp"

#include "core/kernels/elementwise.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

// One of the float copies, by its number.
Vector<float> converted_memory(int number, std::size_t size) {
  static OwnedVector<float> memory[3];
  static const bool hooked = [] {
    Kokkos::push_finalize_hook([] {
      for (auto& one : memory) one = {};
    });
    return true;
  }();
  static_cast<void>(hooked);
  // The old memory may be in use: the new one is made first, and giving back the old waits.
  if (memory[number].size() < size) memory[number] = OwnedVector<float>("minipipe::gemm::converted", size);
  return slice<float>(memory[number], 0, static_cast<std::int64_t>(size));
}

Matrix<float> same_shape(const Vector<float>& memory, std::size_t rows, std::size_t columns) {
  return Matrix<float>(memory.data(), rows, columns);
}

Matrix<float> converted(const ExecutionSpace& space, int number, ConstMatrix<bf16> matrix) {
  const Vector<float> memory = converted_memory(number, matrix.size());
  convert<float, bf16>(space, memory, flatten(matrix));
  return same_shape(memory, matrix.extent(0), matrix.extent(1));
}

}  // namespace

template <class Out>
void converted_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, float alpha, ConstMatrix<bf16> a,
                    ConstMatrix<bf16> b, float beta, Matrix<Out> c) {
  const Matrix<float> left = converted(space, 0, a), right = converted(space, 1, b);
  if constexpr (std::is_same_v<Out, float>) {
    gemm<float>(space, transpose_a, transpose_b, alpha, left, right, beta, c);
  } else {
    const Matrix<float> result =
        beta != 0 ? converted(space, 2, c) : same_shape(converted_memory(2, c.size()), c.extent(0), c.extent(1));
    gemm<float>(space, transpose_a, transpose_b, alpha, left, right, beta, result);
    convert<Out, float>(space, flatten(c), flatten(result));
  }
}

template <class Out>
void gemm_bf16(const ExecutionSpace& space, bool transpose_a, bool transpose_b, float alpha, ConstMatrix<bf16> a,
               ConstMatrix<bf16> b, float beta, Matrix<Out> c) {
  if constexpr (host_reaches) {
    if (alpha == 1 && onednn_gemm<Out>(space, transpose_a, transpose_b, a, b, beta, c)) return;
  }
  converted_gemm<Out>(space, transpose_a, transpose_b, alpha, a, b, beta, c);
}

#define MINIPIPE_INSTANTIATE(Out)                                                                                          \
  template void converted_gemm<Out>(const ExecutionSpace&, bool, bool, float, ConstMatrix<bf16>, ConstMatrix<bf16>, float, \
                                    Matrix<Out>);                                                                          \
  template void gemm_bf16<Out>(const ExecutionSpace&, bool, bool, float, ConstMatrix<bf16>, ConstMatrix<bf16>, float,      \
                               Matrix<Out>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
