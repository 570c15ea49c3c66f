#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Products on a CUDA device, enqueued on the instance's stream (no fence): c[m, n] = alpha op(a) op(b) + beta c, sums in
// Compute<T> (fp32 is true fp32, not TF32). The shapes are checked by gemm(). The algorithm of each shape is asked for once;
// the library's workspace is allocated at the first product. Throws RunError if the library fails.
template <class T, class Out>
void cublaslt_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, Compute<T> alpha, ConstMatrix<T> a,
                   ConstMatrix<T> b, Compute<T> beta, Matrix<Out> c);

#ifdef MINIPIPE_HAVE_CUBLASLT
inline constexpr bool have_cublaslt = !host_reaches;
#else
inline constexpr bool have_cublaslt = false;
#endif

}  // namespace minipipe::core
