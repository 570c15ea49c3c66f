// Products of bf16 by oneDNN's matmul primitive.
#include "core/linalg/cublaslt.hpp"
#include "core/linalg/gemm.hpp"
#include "core/linalg/gemm_bf16.hpp"

// The compiler of CUDA 13.0 fails on this file, whose products of host memory no CUDA program asks for.
#if defined(MINIPIPE_HAVE_ONEDNN) && !defined(__CUDACC__)
#define MINIPIPE_ONEDNN_BF16
#endif

#ifdef MINIPIPE_ONEDNN_BF16
#include <algorithm>
#include <array>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <vector>

#include "core/kernels/elementwise.hpp"
#include "core/types/region.hpp"
#include "schedules/error.hpp"
#endif

namespace minipipe::core {

#ifdef MINIPIPE_ONEDNN_BF16

namespace {

// Processors without these instructions have bf16 products in oneDNN too, but not faster than those of converted copies.
bool have_instructions() {
  static const bool there = [] {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (isa & needed) == needed;
  }();
  return there;
}

// `stride`: elements from row to row, or transposed from column to column.
dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride,
                            dnnl::memory::data_type type) {
  return {{rows, columns}, type, transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1}};
}

// Gradients of weights are computed in blocks of so many rows: their left factor is read along columns, and a block of it fits
// into the second level of cache.
constexpr std::int64_t block_rows = 384;
// Longer sums are formed in parts of this length: the library packs the whole right factor before it multiplies, and a part of
// it stays in the cache.
constexpr std::int64_t part_length = 8192;

// Made once for each shape; a thread has its own, with the library's memory for it.
struct Product {
  dnnl::memory a, b, c;
  dnnl::matmul run;
};
// m, n, k, stride of a, transposed a, transposed b, c is float
using Shape = std::array<std::int64_t, 7>;

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<std::pair<Shape, float>, Product> products;
  std::vector<float> sums;  // of a result in parts; grows to the largest
};

Product make_product(const dnnl::engine& engine, const Shape& shape, float beta) {
  using Type = dnnl::memory::data_type;
  const auto [m, n, k, a_stride, transpose_a, transpose_b, wide] = shape;
  const auto a = describe(m, k, transpose_a != 0, a_stride, Type::bf16);
  const auto b = describe(k, n, transpose_b != 0, transpose_b != 0 ? k : n, Type::bf16);
  const auto c = describe(m, n, false, n, wide != 0 ? Type::f32 : Type::bf16);
  dnnl::primitive_attr attributes;
  if (beta != 0) {
    dnnl::post_ops after;
    after.append_sum(beta);
    attributes.set_post_ops(after);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine, a, b, c, attributes);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
  return {{a, engine, nullptr}, {b, engine, nullptr}, {c, engine, nullptr}, dnnl::matmul(description)};
}

void* handle(const void* data) { return const_cast<void*>(data); }

// The product of that shape, made if it is new.
Product& product_of(Library& library, const Shape& shape, float beta) {
  const auto found = library.products.find({shape, beta});
  if (found != library.products.end()) return found->second;
  return library.products.emplace(std::pair{shape, beta}, make_product(library.engine, shape, beta)).first->second;
}

template <class Out>
void execute(Library& library, const Shape& shape, const bf16* a, const bf16* b, float beta, Out* c) {
  Product& product = product_of(library, shape, beta);
  product.a.set_data_handle(handle(a));
  product.b.set_data_handle(handle(b));
  product.c.set_data_handle(c);
  product.run.execute(library.stream, {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
}

// c = beta c + a b in parts of the sum.
void multiply_in_parts(Library& library, ConstMatrix<bf16> a, ConstMatrix<bf16> b, float beta, float* c) {
  const auto m = static_cast<std::int64_t>(a.extent(0)), k = static_cast<std::int64_t>(a.extent(1));
  const auto n = static_cast<std::int64_t>(b.extent(1));
  for (std::int64_t first = 0; first < k; first += part_length) {
    const Shape part{m, n, std::min(part_length, k - first), k, false, false, true};
    execute(library, part, a.data() + first, b.data() + first * n, first == 0 ? beta : 1.0F, c);
  }
}

// What fits into no part as it is: c of bf16 takes the rounded sums.
template <class Out>
bool has_parts(bool transpose_a, bool transpose_b, std::int64_t k, float beta) {
  return !transpose_a && !transpose_b && k > part_length && (std::is_same_v<Out, float> || beta == 0);
}

}  // namespace

template <class Out>
bool onednn_gemm(const ExecutionSpace& space, bool transpose_a, bool transpose_b, ConstMatrix<bf16> a, ConstMatrix<bf16> b,
                 float beta, Matrix<Out> c) {
  if (!have_instructions()) return false;
  const auto m = static_cast<std::int64_t>(c.extent(0)), n = static_cast<std::int64_t>(c.extent(1));
  const auto k = static_cast<std::int64_t>(a.extent(transpose_a ? 0 : 1));
  if (m == 0 || n == 0 || k == 0) return false;
  const Region region("minipipe::gemm::onednn");
  thread_local Library library;
  try {
    if (has_parts<Out>(transpose_a, transpose_b, k, beta)) {
      if constexpr (std::is_same_v<Out, float>) {
        multiply_in_parts(library, a, b, beta, c.data());
      } else {
        if (library.sums.size() < c.size()) library.sums.resize(c.size());
        multiply_in_parts(library, a, b, 0, library.sums.data());
        library.stream.wait();
        convert<Out, float>(space, flatten(c), ConstVector<float>(library.sums.data(), c.size()));
      }
    } else {
      const std::int64_t block = transpose_a ? block_rows : m, a_stride = transpose_a ? m : k;
      for (std::int64_t first = 0; first < m; first += block) {
        const Shape rows{std::min(block, m - first), n, k, a_stride, transpose_a, transpose_b, std::is_same_v<Out, float>};
        execute(library, rows, a.data() + (transpose_a ? first : 0), b.data(), beta, c.data() + first * n);
      }
    }
    library.stream.wait();
  } catch (const dnnl::error& error) {
    throw RunError(std::string("oneDNN's product of bf16 matrices failed: ") + error.what());
  }
  return true;
}

Bf16Products bf16_products() {
  return have_cublaslt || (host_reaches && have_instructions()) ? Bf16Products::native : Bf16Products::converted;
}

#else

template <class Out>
bool onednn_gemm(const ExecutionSpace&, bool, bool, ConstMatrix<bf16>, ConstMatrix<bf16>, float, Matrix<Out>) {
  return false;
}

Bf16Products bf16_products() { return have_cublaslt ? Bf16Products::native : Bf16Products::converted; }

#endif

template bool onednn_gemm<float>(const ExecutionSpace&, bool, bool, ConstMatrix<bf16>, ConstMatrix<bf16>, float, Matrix<float>);
template bool onednn_gemm<bf16>(const ExecutionSpace&, bool, bool, ConstMatrix<bf16>, ConstMatrix<bf16>, float, Matrix<bf16>);

}  // namespace minipipe::core
