#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "core/types/types.hpp"

namespace minipipe::core {

// Where messages are read and written. `host`: MPI does it, and no library that takes device pointers can be assumed.
// `kernels`: in the kernels' own memory, see StreamLink.
enum class ExchangeMemory { host, kernels };

// What is one run in an array can be sent from where it lies.
constexpr bool reaches_arrays(ExchangeMemory memory) { return on_host || memory == ExchangeMemory::kernels; }

// A slot of staging memory: what kernels see and what messages see. One memory where messages reach the kernels' memory, else
// the latter is a host copy.
struct StagingSlot {
  Vector<float> device;
  float* messages = nullptr;

  // Enqueued on the instance.
  void to_host(const ExecutionSpace& space, std::int64_t offset, std::int64_t floats) const {
    if constexpr (!on_host) {
      if (copied()) Kokkos::deep_copy(space, host(offset, floats), slice(device, offset, floats));
    }
  }
  void to_device(const ExecutionSpace& space, std::int64_t offset, std::int64_t floats) const {
    if constexpr (!on_host) {
      if (copied()) Kokkos::deep_copy(space, slice(device, offset, floats), host(offset, floats));
    }
  }

 private:
  bool copied() const { return messages != device.data(); }
  using Host = Kokkos::View<float*, Kokkos::LayoutRight, Kokkos::HostSpace, Unmanaged>;
  Host host(std::int64_t offset, std::int64_t floats) const {
    return Host(messages + offset, static_cast<std::size_t>(floats));
  }
};

// Slots of equal size, allocated once.
class Staging {
 public:
  Staging(int slots, std::int64_t floats_per_slot, ExchangeMemory memory)
      : slots_(slots),
        floats_(floats_per_slot),
        device_("minipipe::exchange::staging", static_cast<std::size_t>(slots * floats_per_slot)) {
    if (!reaches_arrays(memory)) host_ = HostMemory("minipipe::exchange::host_staging", device_.extent(0));
  }

  int slots() const { return slots_; }
  StagingSlot slot(int index) const {
    const auto floats = static_cast<std::size_t>(floats_);
    float* messages = host_.data() != nullptr ? host_.data() : device_.data();
    return {Vector<float>(device_.data() + index * floats_, floats), messages + index * floats_};
  }
  std::size_t bytes() const { return (device_.span() + host_.span()) * sizeof(float); }
  // The same without allocating.
  static std::size_t bytes(int slots, std::int64_t floats_per_slot, ExchangeMemory memory) {
    return static_cast<std::size_t>(slots * floats_per_slot) * (reaches_arrays(memory) ? 1 : 2) * sizeof(float);
  }

 private:
  // Pinned, where kernels run on a GPU.
  using HostMemory = Kokkos::View<float*, Kokkos::LayoutRight, StagingSpace>;

  int slots_;
  std::int64_t floats_;
  OwnedVector<float> device_;
  HostMemory host_;  // empty: messages reach device_
};

}  // namespace minipipe::core
