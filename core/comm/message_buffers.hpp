#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace minipipe::core {

// The memory behind the slots of one end of an edge: [slots][elements] floats in the default memory space. Where the host
// cannot reach that space (or if asked to), there is a second copy in host memory, through which messages are staged.
class MessageBuffers {
 public:
  using View = Kokkos::View<float**, Kokkos::LayoutRight>;
  using HostView = decltype(Kokkos::create_mirror_view(std::declval<const View&>()));

  enum class Staging { when_needed, always };

  // `name` completes the label "minipipe::comm::<name>"; it is the same on all ranks ("activation_in"). `elements`: floats
  // per message.
  MessageBuffers(const std::string& name, int slots, std::int64_t elements, Staging staging = Staging::when_needed)
      : device_("minipipe::comm::" + name, static_cast<std::size_t>(slots), static_cast<std::size_t>(elements)),
        host_(staging == Staging::always ? Kokkos::create_mirror(device_) : Kokkos::create_mirror_view(device_)) {}

  int slots() const { return static_cast<int>(device_.extent(0)); }
  std::int64_t elements() const { return static_cast<std::int64_t>(device_.extent(1)); }

  // What a stage reads and writes.
  const View& device() const { return device_; }
  // What MPI reads and writes; the same memory as device() unless staged().
  const HostView& host() const { return host_; }
  bool staged() const { return static_cast<const void*>(host_.data()) != static_cast<const void*>(device_.data()); }
  float* host_slot(int slot) const { return host_.data() + static_cast<std::int64_t>(slot) * elements(); }

  // Bytes allocated, staging copy included.
  std::int64_t bytes() const {
    const auto one = static_cast<std::int64_t>(device_.span() * sizeof(float));
    return staged() ? 2 * one : one;
  }

 private:
  View device_;
  HostView host_;
};

}  // namespace minipipe::core
