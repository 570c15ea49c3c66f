#pragma once

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/selective_scan.hpp"
#include "core/kernels/shape.hpp"

// What the forward and the backward of the selective scan share.
namespace minipipe::core {

KOKKOS_INLINE_FUNCTION float log_one_plus(float x) { return ::log1pf(x); }
KOKKOS_INLINE_FUNCTION double log_one_plus(double x) { return ::log1p(x); }

template <class T>
KOKKOS_INLINE_FUNCTION T softplus(T x) {
  return x > 0 ? x + log_one_plus(exponential(-x)) : log_one_plus(exponential(x));
}

KOKKOS_INLINE_FUNCTION std::int64_t chunks_of(const ScanShape& z) { return (z.sequence + scan_chunk - 1) / scan_chunk; }

// What the backward of one sequence and head reads and writes.
template <class T>
struct ScanBackward {
  using C = Compute<T>;
  ScanShape z;
  ScanInputs<const T> in;
  ScanInputs<T> out;
  ConstMatrix<T> output_gradient;
  ConstVector<C> a_log, d, dt_bias, states;
  Vector<C> sums;
  C *b_by_head, *c_by_head;  // [B*T, H, S] each
};

template <class X, class P>
bool fits_scan(const ScanInputs<X>& in, const ScanParameters<P>& parameters, const ScanShape& z) {
  const std::int64_t rows = z.batch * z.sequence;
  return z.sequence > 0 && z.heads > 0 && z.groups > 0 && z.heads % z.groups == 0 && z.head_size > 0 && z.state > 0 &&
         in.x.rows == rows && in.dt.rows == rows && in.b.rows == rows && in.c.rows == rows &&
         in.x.columns == z.heads * z.head_size && in.dt.columns == z.heads && in.b.columns == z.groups * z.state &&
         in.c.columns == z.groups * z.state && extent(parameters.a_log, 0) == z.heads && extent(parameters.d, 0) == z.heads &&
         extent(parameters.dt_bias, 0) == z.heads;
}

}  // namespace minipipe::core
