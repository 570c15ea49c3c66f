#include "core/linalg/gemm.hpp"

#include <KokkosBlas3_gemm.hpp>
#include <algorithm>
#include <limits>
#include <string>

#include "core/linalg/cublaslt.hpp"
#include "core/linalg/gemm_bf16.hpp"
#include "core/types/region.hpp"
#include "schedules/error.hpp"
#ifdef MINIPIPE_HAVE_ONEDNN
#include <dnnl.h>
#endif

namespace minipipe::core {

namespace {

#ifdef MINIPIPE_HAVE_ONEDNN
inline constexpr bool have_onednn = true;
[[maybe_unused]] void onednn_gemm(char a_form, char b_form, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                                  ConstMatrix<float> a, ConstMatrix<float> b, float beta, Matrix<float> c) {
  const auto columns = [](const auto& matrix) { return static_cast<dnnl_dim_t>(matrix.extent(1)); };
  const dnnl_status_t status =
      dnnl_sgemm(a_form, b_form, m, n, k, alpha, a.data(), columns(a), b.data(), columns(b), beta, c.data(), columns(c));
  if (status != dnnl_success) {
    throw RunError("oneDNN sgemm failed with status " + std::to_string(status));
  }
}
#else
inline constexpr bool have_onednn = false;
[[maybe_unused]] void onednn_gemm(char, char, std::int64_t, std::int64_t, std::int64_t, float, ConstMatrix<float>,
                                  ConstMatrix<float>, float, Matrix<float>) {}
#endif

// With the libraries that Kokkos Kernels knows for host memory, wherever that is what the kernels have.
template <class T>
using BlasMatrix =
    Kokkos::View<T**, Kokkos::LayoutRight, std::conditional_t<host_reaches && !on_host, HostSpace, MemorySpace>, Unmanaged>;

template <class T>
void kokkos_gemm(const ExecutionSpace& space, const char* a_form, const char* b_form, T alpha, BlasMatrix<const T> a,
                 BlasMatrix<const T> b, T beta, BlasMatrix<T> c) {
  if constexpr (requires { KokkosBlas::gemm(space, a_form, b_form, alpha, a, b, beta, c); }) {
    KokkosBlas::gemm(space, a_form, b_form, alpha, a, b, beta, c);
  } else {
    // Older Kokkos Kernels work on the default instance.
    fence(space, "before a product on the default instance, because its operands come from this one");
    KokkosBlas::gemm(a_form, b_form, alpha, a, b, beta, c);
    fence(ExecutionSpace(), "after a product on the default instance, because this one goes on with it");
  }
}

}  // namespace

template <class T, class Out>
void gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, Compute<T> alpha, ConstMatrix<T> a, ConstMatrix<T> b,
          Compute<T> beta, Matrix<std::type_identity_t<Out>> c) {
  const auto rows = [](const ConstMatrix<T>& x, bool transpose) {
    return static_cast<std::int64_t>(x.extent(transpose ? 1 : 0));
  };
  const std::int64_t m = rows(a, transpose_a), k = rows(a, !transpose_a), n = rows(b, !transpose_b);
  const auto c_rows = static_cast<std::int64_t>(c.extent(0)), c_columns = static_cast<std::int64_t>(c.extent(1));
  if (rows(b, transpose_b) != k || c_rows != m || c_columns != n) {
    throw RunError("gemm: op(a) is " + std::to_string(m) + " x " + std::to_string(k) + ", op(b) " +
                   std::to_string(rows(b, transpose_b)) + " x " + std::to_string(n) + ", c " + std::to_string(c_rows) + " x " +
                   std::to_string(c_columns));
  }
  if constexpr (have_cublaslt) {
    const Region region("minipipe::gemm::cublaslt");
    cublaslt_gemm<T, Out>(space, transpose_a, transpose_b, alpha, a, b, beta, c);
  } else if constexpr (std::is_same_v<T, bf16>) {
    gemm_bf16<Out>(space, transpose_a, transpose_b, alpha, a, b, beta, c);
  } else if constexpr (std::is_same_v<T, float> && host_reaches && have_onednn) {
    const Region region("minipipe::gemm::onednn");
    onednn_gemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, b, beta, c);
  } else {
    const Region region("minipipe::gemm::kokkos_kernels");
    kokkos_gemm<T>(space, transpose_a ? "T" : "N", transpose_b ? "T" : "N", alpha, a, b, beta, c);
  }
}

template <class T>
double measure_gemm_rate(const ExecutionSpace& space, std::int64_t m, std::int64_t n, std::int64_t k) {
  const OwnedMatrix<T> a("minipipe::gemm::rate_a", m, k), b("minipipe::gemm::rate_b", n, k), c("minipipe::gemm::rate_c", m, n);
  // Zeros may run at a higher clock than data.
  Kokkos::deep_copy(a, T(1.25F));
  Kokkos::deep_copy(b, T(0.75F));
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  double best = std::numeric_limits<double>::infinity();
  double spent = 0;
  // The first product sets up caches and code; then at least 5 more, and up to 0.2 s of them.
  for (int i = 0; i < 6 || (spent < 0.2 && i < 1000); ++i) {
    fence(space, "before the clock starts");
    const Kokkos::Timer timer;
    gemm<T>(space, false, true, 1, a, b, 0, c);
    fence(space, "before the clock is read");
    const double seconds = timer.seconds();
    spent += seconds;
    best = i > 0 ? std::min(best, seconds) : best;
  }
  return flops / best * 1e-9;
}

#define MINIPIPE_INSTANTIATE(T, Out)                                                                                    \
  template void gemm<T, Out>(const ExecutionSpace&, bool, bool, Compute<T>, ConstMatrix<T>, ConstMatrix<T>, Compute<T>, \
                             Matrix<Out>);
MINIPIPE_INSTANTIATE(float, float)
MINIPIPE_INSTANTIATE(double, double)
MINIPIPE_INSTANTIATE(bf16, bf16)
MINIPIPE_INSTANTIATE(bf16, float)
#undef MINIPIPE_INSTANTIATE

template double measure_gemm_rate<float>(const ExecutionSpace&, std::int64_t, std::int64_t, std::int64_t);
template double measure_gemm_rate<double>(const ExecutionSpace&, std::int64_t, std::int64_t, std::int64_t);
template double measure_gemm_rate<bf16>(const ExecutionSpace&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace minipipe::core
