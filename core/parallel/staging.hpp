#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "core/types/types.hpp"

namespace minipipe::core {

// A slot of staging memory: what kernels see and what MPI sees. One memory where the host reaches the kernels' memory, else MPI
// works on a host copy, since a library that takes device pointers cannot be assumed.
struct StagingSlot {
  Vector<float> device;
  Kokkos::View<float*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged> host;

  // Enqueued on the instance.
  void to_host(const ExecutionSpace& space, std::int64_t offset, std::int64_t floats) const {
    if constexpr (!on_host) {
      const auto range = Kokkos::make_pair(offset, offset + floats);
      Kokkos::deep_copy(space, Kokkos::subview(host, range), Kokkos::subview(device, range));
    }
  }
  void to_device(const ExecutionSpace& space, std::int64_t offset, std::int64_t floats) const {
    if constexpr (!on_host) {
      const auto range = Kokkos::make_pair(offset, offset + floats);
      Kokkos::deep_copy(space, Kokkos::subview(device, range), Kokkos::subview(host, range));
    }
  }
};

// Slots of equal size, allocated once.
class Staging {
 public:
  Staging(int slots, std::int64_t floats_per_slot)
      : slots_(slots),
        floats_(floats_per_slot),
        device_("minipipe::exchange::staging", static_cast<std::size_t>(slots * floats_per_slot)),
        host_(Kokkos::create_mirror_view(device_)) {}

  int slots() const { return slots_; }
  StagingSlot slot(int index) const {
    const auto floats = static_cast<std::size_t>(floats_);
    return {Vector<float>(device_.data() + index * floats_, floats),
            decltype(StagingSlot::host)(host_.data() + index * floats_, floats)};
  }
  std::size_t bytes() const { return (device_.span() + (on_host ? 0 : host_.span())) * sizeof(float); }
  // The same without allocating.
  static std::size_t bytes(int slots, std::int64_t floats_per_slot) {
    return static_cast<std::size_t>(slots * floats_per_slot) * (on_host ? 1 : 2) * sizeof(float);
  }

 private:
  int slots_;
  std::int64_t floats_;
  OwnedVector<float> device_;
  OwnedVector<float>::HostMirror host_;
};

}  // namespace minipipe::core
