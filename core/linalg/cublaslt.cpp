#include "core/linalg/cublaslt.hpp"

#ifdef MINIPIPE_HAVE_CUBLASLT

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper; less elsewhere is used
constexpr std::uintptr_t workspace_alignment = 256;             // that of cudaMalloc; arrays of Kokkos begin 128 bytes behind

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw RunError(std::string("cuBLASLt: ") + what + " failed with status " + std::to_string(static_cast<int>(status)));
  }
}

template <class T>
constexpr cudaDataType_t data_type() {
  if constexpr (std::is_same_v<T, bf16>) return CUDA_R_16BF;
  return std::is_same_v<T, double> ? CUDA_R_64F : CUDA_R_32F;
}

// The library and its workspace. One instance's products follow each other, so they share it; several instances may not.
class Library {
 public:
  static Library& get() {
    static Library library;
    return library;
  }
  cublasLtHandle_t handle() const { return handle_; }
  void* workspace() const {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
    return reinterpret_cast<void*>((address + workspace_alignment - 1) / workspace_alignment * workspace_alignment);
  }

 private:
  Library() : workspace_("minipipe::gemm::cublaslt_workspace", workspace_bytes + workspace_alignment) {
    check_lt(cublasLtCreate(&handle_), "cublasLtCreate");
    Kokkos::push_finalize_hook([this] {
      workspace_ = {};
      cublasLtDestroy(handle_);
    });
  }

  cublasLtHandle_t handle_ = nullptr;
  OwnedVector<unsigned char> workspace_;
};

class Layout {
 public:
  // Of a row-major matrix, which the library reads as its transpose.
  template <class T>
  explicit Layout(const Matrix<T>& matrix) {
    const auto columns = static_cast<std::uint64_t>(matrix.extent(1));
    check_lt(cublasLtMatrixLayoutCreate(&layout_, data_type<std::remove_const_t<T>>(), columns,
                                        static_cast<std::uint64_t>(matrix.extent(0)), static_cast<std::int64_t>(columns)),
             "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// Everything about products of one form that can be asked for once.
struct Product {
  template <class T, class Out>
  Product(bool transpose_a, bool transpose_b, ConstMatrix<T> a, ConstMatrix<T> b, Matrix<Out> c, std::uint32_t alignment)
      : left(b), right(a), result(c) {
    const cublasComputeType_t compute = std::is_same_v<Compute<T>, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    check_lt(cublasLtMatmulDescCreate(&description, compute, data_type<Compute<T>>()), "cublasLtMatmulDescCreate");
    // c^T = op(b)^T op(a)^T, and row-major memory is the transpose already.
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_a);
    cublasLtMatmulPreference_t preference = nullptr;
    check_lt(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                         sizeof workspace_bytes);
    // Unless told, the library takes 256 bytes for granted.
    for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      check_lt(cublasLtMatmulPreferenceSetAttribute(preference, which, &alignment, sizeof alignment),
               "cublasLtMatmulPreferenceSetAttribute");
    }
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(Library::get().handle(), description, left, right, result,
                                                                 result, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check_lt(count > 0 ? status : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
    algorithm = found.algo;
  }
  ~Product() { cublasLtMatmulDescDestroy(description); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void set(cublasLtMatmulDescAttributes_t which, bool transpose) {
    const cublasOperation_t form = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_lt(cublasLtMatmulDescSetAttribute(description, which, &form, sizeof form), "cublasLtMatmulDescSetAttribute");
  }

  Layout left, right, result;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

using Key = std::tuple<bool, bool, std::size_t, std::size_t, std::size_t, std::size_t, std::uint32_t>;

// The power of two that all three addresses are multiples of: the offered algorithm must suit later calls, too. No more than
// the 16 bytes that the fastest algorithms want, so that the choice does not depend on where in a buffer a matrix happens to
// lie.
template <class T, class Out>
std::uint32_t common_alignment(ConstMatrix<T> a, ConstMatrix<T> b, Matrix<Out> c) {
  const auto bits = reinterpret_cast<std::uintptr_t>(a.data()) | reinterpret_cast<std::uintptr_t>(b.data()) |
                    reinterpret_cast<std::uintptr_t>(c.data()) | 16U;
  return static_cast<std::uint32_t>(bits & -bits);
}

}  // namespace

template <class T, class Out>
void cublaslt_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, Compute<T> alpha, ConstMatrix<T> a,
                   ConstMatrix<T> b, Compute<T> beta, Matrix<Out> c) {
  static std::map<Key, Product> products;
  const std::uint32_t alignment = common_alignment<T, Out>(a, b, c);
  const Key key{transpose_a, transpose_b, a.extent(0), a.extent(1), c.extent(0), c.extent(1), alignment};
  auto found = products.find(key);
  if (found == products.end()) {
    found = products
                .emplace(std::piecewise_construct, std::forward_as_tuple(key),
                         std::forward_as_tuple(transpose_a, transpose_b, a, b, c, alignment))
                .first;
  }
  const Product& product = found->second;
  check_lt(cublasLtMatmul(Library::get().handle(), product.description, &alpha, b.data(), product.left, a.data(), product.right,
                          &beta, c.data(), product.result, c.data(), product.result, &product.algorithm,
                          Library::get().workspace(), workspace_bytes, space.cuda_stream()),
           "cublasLtMatmul");
}

#define MINIPIPE_INSTANTIATE(T, Out)                                                                                 \
  template void cublaslt_gemm<T, Out>(const ExecutionSpace&, bool, bool, Compute<T>, ConstMatrix<T>, ConstMatrix<T>, \
                                      Compute<T>, Matrix<Out>);
MINIPIPE_INSTANTIATE(float, float)
MINIPIPE_INSTANTIATE(double, double)
MINIPIPE_INSTANTIATE(bf16, bf16)
MINIPIPE_INSTANTIATE(bf16, float)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core

#endif
