#include "core/kernels/initialise.hpp"

#include <cmath>

#include "core/kernels/loops.hpp"
#include "core/kernels/philox.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

// Box-Muller in double for either type: a float parameter is the rounded value of the double one.
template <class T>
void fill_normal(const ExecutionSpace& space, Vector<T> values, double standard_deviation, std::uint64_t seed,
                 std::uint64_t parameter) {
  const std::int64_t count = extent(values, 0);
  // Keeps these numbers apart from the masks of dropout, which use the same seed.
  const std::uint64_t key = seed ^ 0x6e6f726d616c0000ULL;
  T* v = values.data();
  for_elements(
      "minipipe::initialise::normal", space, (count + 1) / 2, KOKKOS_LAMBDA(const std::int64_t pair) {
        const auto words = philox(key, static_cast<std::uint64_t>(pair), parameter);
        const std::uint64_t first = words.v[0] | static_cast<std::uint64_t>(words.v[1]) << 32;
        const std::uint64_t second = words.v[2] | static_cast<std::uint64_t>(words.v[3]) << 32;
        const double u = (static_cast<double>(first >> 11) + 0.5) * 0x1p-53;  // never 0
        const double angle = 2 * 3.14159265358979323846 * (static_cast<double>(second >> 11) * 0x1p-53);
        const double radius = standard_deviation * ::sqrt(-2 * ::log(u));
        v[2 * pair] = static_cast<T>(radius * ::cos(angle));
        if (2 * pair + 1 < count) {
          v[2 * pair + 1] = static_cast<T>(radius * ::sin(angle));
        }
      });
}

template void fill_normal<float>(const ExecutionSpace&, Vector<float>, double, std::uint64_t, std::uint64_t);
template void fill_normal<double>(const ExecutionSpace&, Vector<double>, double, std::uint64_t, std::uint64_t);

}  // namespace minipipe::core
