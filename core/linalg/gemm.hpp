#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// All kernels of this folder and of core/kernels: T, the type of what is stored, is float, double or bf16 and is named by the
// caller (gemm<float>(...)), so that owned and mutable views convert to the parameter types. Work is only enqueued on `space`;
// nothing waits for it.

// c = alpha op(a) op(b) + beta c with op(x) = x or its transpose; row-major, c is [m, n]. With beta = 0 the old c is not read.
// Sums are formed in Compute<T>; c is rounded once, or for bf16 stored as float.
// CUDA: cuBLASLt. float on the host: oneDNN where it was found; otherwise Kokkos Kernels (BLAS). bf16: see gemm_bf16().
// Throws RunError if the shapes do not fit or the library fails.
template <class T, class Out = T>
void gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, Compute<T> alpha, ConstMatrix<T> a, ConstMatrix<T> b,
          Compute<T> beta, Matrix<std::type_identity_t<Out>> c);

// How products of bf16 are formed here: native: by the hardware (cuBLASLt; oneDNN on a CPU with AVX512_BF16 or AMX); converted:
// right but slow, by products in float of converted copies.
enum class Bf16Products { native, converted };
Bf16Products bf16_products();

// The rate of c[m, n] = a[m, k] b[n, k]^T (a linear layer) in GFLOP/s: the best of several repetitions, with the threads of
// this process. Allocates and waits; not for use inside a step.
template <class T>
double measure_gemm_rate(const ExecutionSpace& space, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace minipipe::core
