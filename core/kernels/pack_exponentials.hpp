#pragma once

#include "core/kernels/pack_loops.hpp"

// Exponentials of packs, one or several at a time; only on the host.
namespace minipipe::core {

// Packs that an exponential takes at a time where there are many. The operations on one pack wait for each other, and
// processors do not look far enough ahead to fill the gaps with the next pack: so each operation is done for all packs before
// the next one. (With 16 registers, some constants stay in memory, and it still is faster than fewer packs.)
inline constexpr int packs_at_once = 4;

// x[k] becomes e^x[k] for x[k] <= 86, clamped to -86.6 from below. In contrast to power_of_two, the argument is reduced with
// more digits than a float has, so that the relative error stays below 2e-7 for all x. Not a number stays not a number.
template <int Count>
inline void exponentials(Pack<float> (&x)[Count]) {
  using V = Pack<float>;
  using Bits = PackTypes<float>::Bits;
  V shifted[Count], n[Count], p[Count];
  each_of<Count>([&](int k) { x[k] = at_least(all<V>(-86.6F), x[k]); });
  each_of<Count>([&](int k) { shifted[k] = multiply_add(x[k], all<V>(1.44269504F), all<V>(exp2_rounder)); });
  each_of<Count>([&](int k) { n[k] = shifted[k] - exp2_rounder; });
  // 10 bits of ln 2: their product with n is exact.
  each_of<Count>([&](int k) { x[k] = multiply_add(n[k], all<V>(-0.693359375F), x[k]); });
  each_of<Count>([&](int k) { x[k] = multiply_add(n[k], all<V>(2.12194440e-4F), x[k]); });
  each_of<Count>([&](int k) { p[k] = all<V>(0.0013843653723597527F); });
  const auto times_x_plus = [&](float coefficient) {
    each_of<Count>([&](int k) { p[k] = multiply_add(p[k], x[k], all<V>(coefficient)); });
  };
  times_x_plus(0.008374154567718506F);
  times_x_plus(0.04166800156235695F);
  times_x_plus(0.16666430234909058F);
  times_x_plus(0.4999999403953552F);
  times_x_plus(1.0F);
  times_x_plus(1.0F);
  each_of<Count>([&](int k) { x[k] = (V)((Bits)p[k] + ((Bits)shifted[k] << 23)); });
}
template <int Count>
inline void exponentials(Pack<double> (&x)[Count]) {
  for (Pack<double>& pack : x) {
    double lanes[pack_size<double>];
    std::memcpy(lanes, &pack, sizeof pack);
    for (double& lane : lanes) lane = ::exp(lane);
    std::memcpy(&pack, lanes, sizeof pack);
  }
}

// Whether the target adds to a product before it is rounded.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool fused_products = true;
#else
inline constexpr bool fused_products = false;
#endif

// x[k] becomes e^x[k] for x[k] <= 0 as a term of a sum to which some lane adds 1; an operation shorter than the one above, with
// the polynomial of power_of_two. log2(e) is a plain float here: the relative error is below 2e-7 + 2e-8 |x|, which grows far
// slower than the term itself becomes small. (Where products are rounded first, that error would be four times as large: so it
// is the one above there.)
template <int Count>
inline void exponential_terms(Pack<float> (&x)[Count]) {
  if constexpr (!fused_products) return exponentials(x);
  using V = Pack<float>;
  using Bits = PackTypes<float>::Bits;
  const V log2_e = all<V>(1.44269504F);
  V shifted[Count], p[Count];
  each_of<Count>([&](int k) { x[k] = at_least(all<V>(-86.6F), x[k]); });
  each_of<Count>([&](int k) { shifted[k] = multiply_add(x[k], log2_e, all<V>(exp2_rounder)); });
  each_of<Count>([&](int k) { p[k] = exp2_rounder - shifted[k]; });
  each_of<Count>([&](int k) { x[k] = multiply_add(x[k], log2_e, p[k]); });
  each_of<Count>([&](int k) { p[k] = all<V>(0.00015353361959569156F); });
  const auto times_x_plus = [&](float coefficient) {
    each_of<Count>([&](int k) { p[k] = multiply_add(p[k], x[k], all<V>(coefficient)); });
  };
  times_x_plus(0.0013398873852565885F);
  times_x_plus(0.00961843691766262F);
  times_x_plus(0.055503323674201965F);
  times_x_plus(0.24022647738456726F);
  times_x_plus(0.6931471824645996F);
  times_x_plus(1.0F);
  each_of<Count>([&](int k) { x[k] = (V)((Bits)p[k] + ((Bits)shifted[k] << 23)); });
}
template <int Count>
inline void exponential_terms(Pack<double> (&x)[Count]) {
  exponentials(x);
}

// The same of one pack, returned.
inline Pack<float> exponential(Pack<float> x) {
  Pack<float> one[] = {x};
  exponentials(one);
  return one[0];
}
inline Pack<double> exponential(Pack<double> x) {
  Pack<double> one[] = {x};
  exponentials(one);
  return one[0];
}
inline Pack<float> exponential_term(Pack<float> x) {
  Pack<float> one[] = {x};
  exponential_terms(one);
  return one[0];
}

}  // namespace minipipe::core
