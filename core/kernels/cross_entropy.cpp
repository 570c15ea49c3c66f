#include "core/kernels/cross_entropy.hpp"

#include "core/kernels/pack_exponentials.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// exp(x - largest) stays in the place of x, unless that would round it: then it is formed again.
template <class T>
inline constexpr bool exact_in_place = std::is_same_v<T, Compute<T>>;

// ---- host: a row in packs -------------------------------------------------------------------------------------------------

// The largest of `before` and what lies between two places, by lane.
template <class T>
Pack<Compute<T>> largest_of(Pack<Compute<T>> before, const T* x, std::int64_t first, std::int64_t end) {
  using C = Compute<T>;
  const Pack<C> lowest = Pack<C>{} + lowest_value<C>;
  Pack<C> parts[4] = {before, before, before, before};
  each_pack_in_parts<C, 4>(first, end, [&](const auto& lanes, std::int64_t c, int part) {
    parts[part] = at_least(parts[part], lanes.or_else(lanes.load(x + c), lowest));
  });
  return at_least(at_least(parts[0], parts[1]), at_least(parts[2], parts[3]));
}

// log(sum exp(x)) - x[target] in one pass over memory: each lane with the largest value it has seen so far, which is that of a
// chunk ahead, found while the exponentials of the chunk before it are formed.
template <class T>
Compute<T> host_loss(const T* x, std::int64_t columns, std::int32_t target) {
  using C = Compute<T>;
  using V = Pack<C>;
  constexpr std::int64_t chunk = 1024, fetched_ahead = 4 * chunk;
  const auto end_of = [=](std::int64_t first) { return first + chunk < columns ? first + chunk : columns; };
  const V zero = {};
  V largest = largest_of<T>(V{} + lowest_value<C>, x, 0, end_of(0)), total = zero;
  for (std::int64_t first = 0; first < columns; first += chunk) {
    const std::int64_t end = end_of(first);
    V ahead = largest;
    const auto add_terms = [&](auto chunk_follows) {
      each_few_packs<C, packs_at_once>(first, end, [&](const auto& lanes, std::int64_t c, auto count) {
        V terms[count.value];
        each_of<count.value>([&](int k) {
          const T* const place = x + c + k * pack_size<C>;
          prefetch_near(place + fetched_ahead);
          if constexpr (chunk_follows.value) ahead = at_least(ahead, load_pack(place + chunk));
          terms[k] = lanes.load(place) - largest;
        });
        exponential_terms(terms);
        each_of<count.value>([&](int k) { total += lanes.or_else(terms[k], zero); });
      });
    };
    if (end + chunk <= columns) {
      add_terms(std::true_type{});
    } else {
      add_terms(std::false_type{});
      ahead = largest_of<T>(largest, x, end, end_of(end));
    }
    total *= exponential(largest - ahead);
    largest = ahead;
  }
  const C top = largest_lane(largest);
  return logarithm(sum_of_lanes(total * exponential(largest - top))) + (top - x[target]);
}

template <class T>
Compute<T> host_gradient(T* x, std::int64_t columns, std::int32_t target, Compute<T> scale) {
  using C = Compute<T>;
  using V = Pack<C>;
  const C largest = largest_lane(largest_of<T>(V{} + lowest_value<C>, x, 0, columns)), below = largest - x[target];
  // The target's entry p - 1 would cancel when the model is sure; it is minus the sum of the others.
  const V zero = {};
  V sum = zero;
  each_few_packs<C, packs_at_once>(0, columns, [&](const auto& lanes, std::int64_t c, auto count) {
    V values[count.value];
    each_of<count.value>([&](int k) {
      const T* const place = x + c + k * pack_size<C>;
      prefetch(place + columns);
      values[k] = lanes.load(place) - largest;
    });
    exponentials(values);
    each_of<count.value>([&](int k) {
      const std::int64_t first = c + k * pack_size<C>;
      if constexpr (exact_in_place<T>) lanes.store(x + first, values[k]);
      if (target - first < pack_size<C> && target >= first) values[k][target - first] = 0;
      sum += lanes.or_else(values[k], zero);
    });
  });
  const C others = sum_of_lanes(sum);
  const C total = others + exponential(-below);
  const C factor = scale / total;
  each_few_packs<C, packs_at_once>(0, columns, [&](const auto& lanes, std::int64_t c, auto count) {
    V values[count.value];
    each_of<count.value>([&](int k) { values[k] = lanes.load(x + c + k * pack_size<C>); });
    if constexpr (!exact_in_place<T>) {
      each_of<count.value>([&](int k) { values[k] -= largest; });
      exponentials(values);
    }
    each_of<count.value>([&](int k) { lanes.store(x + c + k * pack_size<C>, values[k] * factor); });
  });
  x[target] = -others * factor;
  return logarithm(total) + below;
}

// ---- device: a row in the lanes of a team ---------------------------------------------------------------------------------

template <class T, class Member>
KOKKOS_INLINE_FUNCTION Compute<T> team_loss(const Member& member, const T* x, std::int64_t columns, std::int32_t target) {
  using C = Compute<T>;
  const C largest = row_max<C>(member, columns, lowest_value<C>, [=](const std::int64_t c) { return static_cast<C>(x[c]); });
  const C total = row_sum<C>(member, columns, [=](const std::int64_t c) { return exponential(x[c] - largest); });
  return logarithm(total) + (largest - x[target]);
}

template <class T, class Member>
KOKKOS_INLINE_FUNCTION Compute<T> team_gradient(const Member& member, T* x, std::int64_t columns, std::int32_t target,
                                                Compute<T> scale) {
  using C = Compute<T>;
  const C wanted = x[target];  // before others of the team put an exponential there
  const C largest = row_max<C>(member, columns, lowest_value<C>, [=](const std::int64_t c) { return static_cast<C>(x[c]); });
  const C below = largest - wanted;
  const C others = row_sum<C>(member, columns, [=](const std::int64_t c) {
    const C value = exponential(x[c] - largest);
    if (exact_in_place<T>) x[c] = value;
    return c == target ? C(0) : value;
  });
  const C total = others + exponential(-below);
  const C factor = scale / total;
  row_for(member, columns, [=](const std::int64_t c) {
    const C value = x[c];
    x[c] = (exact_in_place<T> ? value : exponential(value - largest)) * factor;
  });
  row_for(member, 1, [=](const std::int64_t) { x[target] = -others * factor; });
  return logarithm(total) + below;
}

}  // namespace

template <class T>
void cross_entropy_loss(const ExecutionSpace& space, Vector<Compute<T>> losses, ConstMatrix<T> logits,
                        ConstVector<std::int32_t> targets) {
  using C = Compute<T>;
  const std::int64_t rows = extent(logits, 0), columns = extent(logits, 1);
  require_shape(extent(losses, 0) == rows && extent(targets, 0) == rows, "cross_entropy_loss");
  for_rows(
      "minipipe::cross_entropy::loss", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(logits, row);
        const std::int32_t target = targets(row);
        const std::int64_t width = columns;  // before the branch, because nvcc captures nothing inside it
        C loss = 0;
        if (target >= 0) {
          if constexpr (on_host) {
            loss = host_loss(x, width, target);
          } else {
            loss = team_loss(member, x, width, target);
          }
        }
        row_for(member, 1, [=](const std::int64_t) { losses(row) = loss; });
      });
}

template <class T>
void cross_entropy_gradient(const ExecutionSpace& space, Vector<Compute<T>> losses, Matrix<T> logits,
                            ConstVector<std::int32_t> targets, Compute<T> scale) {
  using C = Compute<T>;
  const std::int64_t rows = extent(logits, 0), columns = extent(logits, 1);
  require_shape(extent(losses, 0) == rows && extent(targets, 0) == rows, "cross_entropy_gradient");
  for_rows(
      "minipipe::cross_entropy::gradient", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* x = row_pointer(logits, row);
        const std::int32_t target = targets(row);
        const std::int64_t width = columns;  // before the branch, because nvcc captures nothing inside it
        const C factor = scale;
        C loss = 0;
        if (target < 0) {
          row_for(member, width, [=](const std::int64_t c) { x[c] = 0; });
        } else if constexpr (on_host) {
          loss = host_gradient(x, width, target, factor);
        } else {
          loss = team_gradient(member, x, width, target, factor);
        }
        row_for(member, 1, [=](const std::int64_t) { losses(row) = loss; });
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                              \
  template void cross_entropy_loss<T>(const ExecutionSpace&, Vector<Compute<T>>, ConstMatrix<T>, ConstVector<std::int32_t>); \
  template void cross_entropy_gradient<T>(const ExecutionSpace&, Vector<Compute<T>>, Matrix<T>, ConstVector<std::int32_t>,   \
                                          Compute<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
