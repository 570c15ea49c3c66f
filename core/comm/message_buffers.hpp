#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>

#include "core/types/types.hpp"

namespace minipipe::core {

// The memory behind the slots of one end of an edge: [slots][elements] floats where kernels run. Where the host
// cannot reach that space (or if asked to), there is a second copy in host memory, through which messages are staged, unless
// the transport takes device memory.
class MessageBuffers {
 public:
  using View = Kokkos::View<float**, Kokkos::LayoutRight, MemorySpace>;
  using HostView = Kokkos::View<float**, Kokkos::LayoutRight, StagingSpace>;

  enum class Staging { when_needed, always, never };

  // `name` completes the label "minipipe::comm::<name>"; it is the same on all ranks ("activation_in"). `elements`: floats
  // per message.
  MessageBuffers(const std::string& name, int slots, std::int64_t elements, Staging staging = Staging::when_needed)
      : device_("minipipe::comm::" + name, static_cast<std::size_t>(slots), static_cast<std::size_t>(elements)),
        host_(host_copy(device_, staging)) {}

  int slots() const { return static_cast<int>(device_.extent(0)); }
  std::int64_t elements() const { return static_cast<std::int64_t>(device_.extent(1)); }

  // What a stage reads and writes.
  const View& device() const { return device_; }
  // What the transport reads and writes; the same memory as device() unless staged(). Empty if device memory is never staged.
  const HostView& host() const { return host_; }
  bool staged() const { return host_.data() != nullptr && host_.data() != device_.data(); }
  float* transport_slot(int slot) const {
    return (staged() ? host_.data() : device_.data()) + static_cast<std::int64_t>(slot) * elements();
  }

  // Bytes allocated, staging copy included.
  std::int64_t bytes() const {
    const auto one = static_cast<std::int64_t>(device_.span() * sizeof(float));
    return staged() ? 2 * one : one;
  }

 private:
  static HostView host_copy(const View& device, Staging staging) {
    if constexpr (std::is_same_v<StagingSpace, View::memory_space>) {
      if (staging != Staging::always) return device;
    }
    if (staging == Staging::never) return {};
    return HostView("minipipe::comm::staging", device.extent(0), device.extent(1));
  }

  View device_;
  HostView host_;
};

}  // namespace minipipe::core
