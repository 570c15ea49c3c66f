#include "core/kernels/initialise.hpp"

#include <cmath>

#include "core/kernels/loops.hpp"
#include "core/kernels/philox.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// Keeps these numbers apart from the masks of dropout, which use the same seed.
std::uint64_t key_of(std::uint64_t seed) { return seed ^ 0x6e6f726d616c0000ULL; }

// In [0, 1).
KOKKOS_INLINE_FUNCTION double uniform_number(std::uint64_t key, std::int64_t i, std::uint64_t parameter) {
  const auto words = philox(key, static_cast<std::uint64_t>(i), parameter);
  const std::uint64_t bits = words.v[0] | static_cast<std::uint64_t>(words.v[1]) << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

KOKKOS_INLINE_FUNCTION double mapped(UniformMap map, double value) {
  if (map == UniformMap::logarithm) return ::log(value);
  if (map == UniformMap::identity) return value;
  const double step = ::exp(value);
  return step + ::log(-::expm1(-step));
}

struct NormalPair {
  double first, second;
};

// Box-Muller in double for either type: a float parameter is the rounded value of the double one.
KOKKOS_INLINE_FUNCTION NormalPair normal_pair(std::uint64_t key, std::int64_t pair, std::uint64_t parameter,
                                              double standard_deviation) {
  const auto words = philox(key, static_cast<std::uint64_t>(pair), parameter);
  const std::uint64_t first = words.v[0] | static_cast<std::uint64_t>(words.v[1]) << 32;
  const std::uint64_t second = words.v[2] | static_cast<std::uint64_t>(words.v[3]) << 32;
  const double u = (static_cast<double>(first >> 11) + 0.5) * 0x1p-53;  // never 0
  const double angle = 2 * 3.14159265358979323846 * (static_cast<double>(second >> 11) * 0x1p-53);
  const double radius = standard_deviation * ::sqrt(-2 * ::log(u));
  return {radius * ::cos(angle), radius * ::sin(angle)};
}

}  // namespace

template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, double standard_deviation, std::uint64_t seed,
                 std::uint64_t parameter) {
  const std::int64_t count = extent(values, 0);
  const std::uint64_t key = key_of(seed);
  T* v = values.data();
  for_elements(
      "minipipe::initialise::normal", space, (count + 1) / 2, KOKKOS_LAMBDA(const std::int64_t pair) {
        const NormalPair normal = normal_pair(key, pair, parameter, standard_deviation);
        v[2 * pair] = static_cast<T>(normal.first);
        if (2 * pair + 1 < count) {
          v[2 * pair + 1] = static_cast<T>(normal.second);
        }
      });
}

template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, const NormalRectangle& rectangle, double standard_deviation,
                 std::uint64_t seed, std::uint64_t parameter) {
  const NormalRectangle at = rectangle;
  const std::int64_t count = at.rows * at.columns;
  require_shape(count == 0 || (at.rows - 1) * at.stride + at.columns <= extent(values, 0), "fill_normal");
  const std::uint64_t key = key_of(seed);
  T* v = values.data();
  for_elements(
      "minipipe::initialise::normal_rectangle", space, count, KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int64_t row = i / at.columns, column = i % at.columns;
        const std::int64_t full = (at.full_row + row) * at.full_columns + at.full_column + column;
        const NormalPair normal = normal_pair(key, full / 2, parameter, standard_deviation);
        v[row * at.stride + column] = static_cast<T>(full % 2 == 0 ? normal.first : normal.second);
      });
}

template <class T>
void fill_uniform(const ExecutionSpace& space, Vector<T> values, double low, double high, UniformMap map, std::uint64_t seed,
                  std::uint64_t parameter) {
  const std::uint64_t key = key_of(seed);
  T* v = values.data();
  for_elements(
      "minipipe::initialise::uniform", space, extent(values, 0), KOKKOS_LAMBDA(const std::int64_t i) {
        v[i] = static_cast<T>(mapped(map, low + (high - low) * uniform_number(key, i, parameter)));
      });
}

template void fill_normal<float>(const ExecutionSpace&, Vector<float>, double, std::uint64_t, std::uint64_t);
template void fill_normal<float>(const ExecutionSpace&, Vector<float>, const NormalRectangle&, double, std::uint64_t,
                                 std::uint64_t);
template void fill_normal<double>(const ExecutionSpace&, Vector<double>, double, std::uint64_t, std::uint64_t);
template void fill_normal<double>(const ExecutionSpace&, Vector<double>, const NormalRectangle&, double, std::uint64_t,
                                  std::uint64_t);
template void fill_uniform<float>(const ExecutionSpace&, Vector<float>, double, double, UniformMap, std::uint64_t,
                                  std::uint64_t);
template void fill_uniform<double>(const ExecutionSpace&, Vector<double>, double, double, UniformMap, std::uint64_t,
                                   std::uint64_t);

}  // namespace minipipe::core
