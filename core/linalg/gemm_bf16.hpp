#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// The products of gemm() for bf16, their shapes checked. Out is bf16 or float.
//
// Copies in float, in memory that grows to the largest operands it has seen and is kept until Kokkos ends.
template <class Out>
void converted_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, float alpha, ConstMatrix<bf16> a,
                    ConstMatrix<bf16> b, float beta, Matrix<Out> c);

// oneDNN on the host, alpha = 1; its code for each shape is made once and kept. False if it has none for this processor: then
// nothing was done. Throws RunError if the library fails.
template <class Out>
bool onednn_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, ConstMatrix<bf16> a, ConstMatrix<bf16> b,
                 float beta, Matrix<Out> c);

// Where cublaslt_gemm() has not been taken: oneDNN, or else copies.
template <class Out>
void gemm_bf16(const ExecutionSpace& space, bool transpose_a, bool transpose_b, float alpha, ConstMatrix<bf16> a,
               ConstMatrix<bf16> b, float beta, Matrix<Out> c);

}  // namespace minipipe::core
