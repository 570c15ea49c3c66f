#include "core/model/linear.hpp"

#include "core/kernels/bias.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

template <class T>
void linear_forward(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<T> input, ConstMatrix<T> weight,
                    ConstVector<Compute<T>> bias) {
  gemm<T>(space, false, true, 1, input, weight, 0, out);
  if (bias.size() > 0) bias_add<T>(space, out, bias);
}

template <class T>
void linear_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                           ConstMatrix<T> weight, bool accumulate) {
  gemm<T>(space, false, false, 1, output_gradient, weight, accumulate ? 1 : 0, input_gradient);
}

template <class T>
void linear_backward_weight(const ExecutionSpace& space, Matrix<Compute<T>> weight_gradient, Vector<Compute<T>> bias_gradient,
                            ConstMatrix<T> output_gradient, ConstMatrix<T> input, bool fresh) {
  gemm<T, Compute<T>>(space, true, false, 1, output_gradient, input, fresh ? 0 : 1, weight_gradient);
  if (bias_gradient.size() > 0) minipipe::core::bias_gradient<T>(space, bias_gradient, output_gradient);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                               \
  template void linear_forward<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>, ConstVector<Compute<T>>); \
  template void linear_backward_input<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>, bool);             \
  template void linear_backward_weight<T>(const ExecutionSpace&, Matrix<Compute<T>>, Vector<Compute<T>>, ConstMatrix<T>,      \
                                          ConstMatrix<T>, bool);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
