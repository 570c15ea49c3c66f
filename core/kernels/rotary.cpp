#include "core/kernels/rotary.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

void rotary_table(const ExecutionSpace& space, Matrix<double> table, double base) {
  const std::int64_t depth = extent(table, 1), half = depth / 2;
  require_shape(depth % 2 == 0, "rotary_table");
  for_rows(
      "minipipe::rotary::table", space, extent(table, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t t) {
        double* row = row_pointer(table, t);
        row_for(member, half, [=](const std::int64_t i) {
          const double angle = static_cast<double>(t) * ::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(depth));
          row[i] = ::cos(angle);
          row[half + i] = ::sin(angle);
        });
      });
}

template <class T>
void rotary_apply(const ExecutionSpace& space, Matrix<T> values, ConstMatrix<double> table, std::int64_t sequence,
                  bool inverse) {
  const std::int64_t depth = extent(table, 1), half = depth / 2;
  require_shape(depth > 0 && depth % 2 == 0 && extent(values, 1) % depth == 0 && sequence > 0 && extent(table, 0) >= sequence &&
                    extent(values, 0) % sequence == 0,
                "rotary_apply");
  const std::int64_t heads = extent(values, 1) / depth;
  using C = Compute<T>;
  const C direction = inverse ? C(-1) : C(1);
  for_rows(
      "minipipe::rotary::apply", space, extent(values, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const double* cosine = row_pointer(table, row % sequence);
        const double* sine = cosine + half;
        // On a device all heads are one loop: a head alone would leave most of a team idle.
        const std::int64_t together = on_host ? 1 : heads;
        for (std::int64_t h = 0; h < heads; h += together) {
          T* const head = row_pointer(values, row) + h * depth;
          row_for(member, together * half, [=](const std::int64_t place) {
            // (Divisions of longer integers take long on a device.)
            const auto j = static_cast<std::uint32_t>(place), size = static_cast<std::uint32_t>(half);
            T* const first = on_host ? head : head + j / size * depth;
            T* const second = first + half;
            const std::int64_t i = on_host ? place : j % size;
            const C c = static_cast<C>(cosine[i]), s = direction * static_cast<C>(sine[i]);
            const C a = first[i], b = second[i];
            first[i] = a * c - b * s;
            second[i] = b * c + a * s;
          });
        }
      });
}

template void rotary_apply<float>(const ExecutionSpace&, Matrix<float>, ConstMatrix<double>, std::int64_t, bool);
template void rotary_apply<bf16>(const ExecutionSpace&, Matrix<bf16>, ConstMatrix<double>, std::int64_t, bool);
template void rotary_apply<double>(const ExecutionSpace&, Matrix<double>, ConstMatrix<double>, std::int64_t, bool);

}  // namespace minipipe::core
