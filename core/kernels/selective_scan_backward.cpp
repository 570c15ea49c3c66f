#include "core/kernels/selective_scan_backward_device.hpp"
#include "core/kernels/selective_scan_backward_host.hpp"

namespace minipipe::core {

std::int64_t scan_workspace(const ScanShape& z) {
  const std::int64_t by_head = 2 * z.batch * z.sequence * z.heads * z.state;
  return on_host ? by_head : by_head + device_scan_scratch(z);
}

template <class T>
void selective_scan_backward_input(const ExecutionSpace& space, const ScanInputs<T>& gradients, Vector<Compute<T>> sums,
                                   ConstMatrix<T> output_gradient, const ScanInputs<const T>& inputs,
                                   const ScanParameters<const Compute<T>>& parameters, ConstVector<Compute<T>> states,
                                   Vector<Compute<T>> workspace, const ScanShape& shape) {
  using C = Compute<T>;
  require_shape(fits_scan(inputs, parameters, shape) && fits_scan(gradients, parameters, shape) &&
                    extent(output_gradient, 0) == inputs.x.rows && extent(output_gradient, 1) == inputs.x.columns &&
                    extent(states, 0) >= scan_states(shape) && extent(workspace, 0) >= scan_workspace(shape) &&
                    extent(sums, 0) >= scan_sums(shape),
                "selective_scan_backward_input");
  const ScanShape z = shape;
  const ScanInputs<T> out = gradients;
  const std::int64_t by_head = z.heads * z.state;
  C* b_by_head = workspace.data();  // [B*T, H, S]
  C* c_by_head = b_by_head + z.batch * z.sequence * by_head;
  // With g the gradient of the state, g_t = C_t dy_t^T + decay_{t+1} g_{t+1}: dC = h dy, dB = dt g x, dx = dt g^T B + D dy,
  // d dt = B^T g x + A decay <g_t, h_{t-1}>, dA = sum_t dt decay <g_t, h_{t-1}>.
  const ScanBackward<T> scan{z,      inputs, out,       output_gradient, parameters.a_log, parameters.d, parameters.dt_bias,
                             states, sums,   b_by_head, c_by_head};
  if constexpr (on_host) {
    scan_backward_on_host(space, scan);
  } else {
    scan_backward_on_device(space, scan, c_by_head + z.batch * z.sequence * by_head);
  }
  const std::int64_t share = z.heads / z.groups;
  for_rows(
      "minipipe::selective_scan::backward_groups", space, z.batch * z.sequence,
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const C* from_b = b_by_head + row * by_head;
        const C* from_c = c_by_head + row * by_head;
        T* db = out.b.data + row * out.b.stride;
        T* dc = out.c.data + row * out.c.stride;
        row_for(member, z.groups * z.state, [=](const std::int64_t i) {
          const std::int64_t first = i / z.state * share * z.state + i % z.state;
          C sum_b = 0, sum_c = 0;
          for (std::int64_t head = 0; head < share; ++head) {
            sum_b += from_b[first + head * z.state];
            sum_c += from_c[first + head * z.state];
          }
          db[i] = sum_b;
          dc[i] = sum_c;
        });
      });
}

template <class T>
void selective_scan_backward_parameters(const ExecutionSpace& space, const ScanParameters<T>& gradients, ConstVector<T> sums,
                                        const ScanShape& shape) {
  const std::int64_t batch = shape.batch, heads = shape.heads;
  const Vector<T> a_log = gradients.a_log, d = gradients.d, dt_bias = gradients.dt_bias;
  require_shape(
      extent(a_log, 0) == heads && extent(d, 0) == heads && extent(dt_bias, 0) == heads && extent(sums, 0) >= scan_sums(shape),
      "selective_scan_backward_parameters");
  Kokkos::parallel_for(
      "minipipe::selective_scan::backward_parameters", RowRange(space, 0, heads), KOKKOS_LAMBDA(const std::int64_t h) {
        T total[3] = {};
        for (std::int64_t b = 0; b < batch; ++b) {
          for (int i = 0; i < 3; ++i) {
            total[i] += sums((b * heads + h) * 3 + i);
          }
        }
        a_log(h) += total[0];
        d(h) += total[1];
        dt_bias(h) += total[2];
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                    \
  template void selective_scan_backward_input<T>(                                                                  \
      const ExecutionSpace&, const ScanInputs<T>&, Vector<Compute<T>>, ConstMatrix<T>, const ScanInputs<const T>&, \
      const ScanParameters<const Compute<T>>&, ConstVector<Compute<T>>, Vector<Compute<T>>, const ScanShape&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
template void selective_scan_backward_parameters<float>(const ExecutionSpace&, const ScanParameters<float>&, ConstVector<float>,
                                                        const ScanShape&);
template void selective_scan_backward_parameters<double>(const ExecutionSpace&, const ScanParameters<double>&,
                                                         ConstVector<double>, const ScanShape&);

}  // namespace minipipe::core
