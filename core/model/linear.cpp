#include "core/model/linear.hpp"

#include "core/kernels/bias.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

template <class T>
void linear_forward(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<T> input, ConstMatrix<T> weight,
                    ConstVector<T> bias) {
  gemm<T>(space, false, true, T(1), input, weight, T(0), out);
  if (bias.size() > 0) bias_add<T>(space, out, bias);
}

template <class T>
void linear_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                           ConstMatrix<T> weight, bool accumulate) {
  gemm<T>(space, false, false, T(1), output_gradient, weight, T(accumulate ? 1 : 0), input_gradient);
}

template <class T>
void linear_backward_weight(const ExecutionSpace& space, Matrix<T> weight_gradient, Vector<T> bias_gradient,
                            ConstMatrix<T> output_gradient, ConstMatrix<T> input) {
  gemm<T>(space, true, false, T(1), output_gradient, input, T(1), weight_gradient);
  if (bias_gradient.size() > 0) minipipe::core::bias_gradient<T>(space, bias_gradient, output_gradient);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                      \
  template void linear_forward<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>, ConstVector<T>); \
  template void linear_backward_input<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>, bool);    \
  template void linear_backward_weight<T>(const ExecutionSpace&, Matrix<T>, Vector<T>, ConstMatrix<T>, ConstMatrix<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
