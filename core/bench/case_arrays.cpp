#include "core/bench/kernel_case.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/initialise.hpp"

namespace minipipe::core {

OwnedVector<float> random_vector(const ExecutionSpace& space, std::int64_t size) {
  OwnedVector<float> values("minipipe::bench::values", size);
  fill_normal<float>(space, values, 1.0, 1, static_cast<std::uint64_t>(size));
  return values;
}

OwnedMatrix<float> random_matrix(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns) {
  OwnedMatrix<float> values("minipipe::bench::values", rows, columns);
  fill_normal<float>(space, flatten(values), 1.0, 1, static_cast<std::uint64_t>(rows * columns));
  return values;
}

template <class T>
OwnedMatrix<T> random_values(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns) {
  const OwnedMatrix<float> values = random_matrix(space, rows, columns);
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    OwnedMatrix<T> rounded("minipipe::bench::values", rows, columns);
    convert<T, float>(space, flatten(Matrix<T>(rounded)), flatten(Matrix<float>(values)));
    fence(space, "before what was converted is given back");
    return rounded;
  }
}

template OwnedMatrix<float> random_values<float>(const ExecutionSpace&, std::int64_t, std::int64_t);
template OwnedMatrix<bf16> random_values<bf16>(const ExecutionSpace&, std::int64_t, std::int64_t);

OwnedVector<std::int32_t> random_tokens(std::int64_t count, int vocab) {
  OwnedVector<std::int32_t> tokens("minipipe::bench::tokens", count);
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), tokens);
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's linear congruential generator, MMIX
    host(i) = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab));
  }
  Kokkos::deep_copy(tokens, host);
  return tokens;
}

std::string shape_text(const std::vector<std::int64_t>& extents) {
  std::string text;
  for (const std::int64_t extent : extents) text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

}  // namespace minipipe::core
