#pragma once

#include <Kokkos_Core.hpp>

namespace minipipe::core::device_forms {

struct MemoryName {
  static constexpr const char* get_name() { return "DeviceForms"; }
};
// Host memory that Kokkos holds for other memory: mirrors in host memory are copies, and deep copies between the two are made.
template <class ExecutionSpace>
using Memory = Kokkos::Experimental::LogicalMemorySpace<Kokkos::HostSpace, ExecutionSpace, MemoryName>;

}  // namespace minipipe::core::device_forms

// What Kokkos 3.4 lacks of logical spaces.
namespace Kokkos::Impl {

// It has two answers here, that for anonymous spaces and that for logical ones.
template <class ExecutionSpace>
struct MemorySpaceAccess<AnonymousSpace, minipipe::core::device_forms::Memory<ExecutionSpace>> {
  enum { assignable = true, accessible = true, deepcopy = true };
};
template <class ExecutionSpace>
struct MemorySpaceAccess<minipipe::core::device_forms::Memory<ExecutionSpace>, AnonymousSpace> {
  enum { assignable = true, accessible = true, deepcopy = true };
};

// Its own do not copy from arrays of constants.
template <class ExecutionSpace, class On>
struct DeepCopy<minipipe::core::device_forms::Memory<ExecutionSpace>, HostSpace, On> : DeepCopy<HostSpace, HostSpace, On> {
  using DeepCopy<HostSpace, HostSpace, On>::DeepCopy;
};
template <class ExecutionSpace, class On>
struct DeepCopy<HostSpace, minipipe::core::device_forms::Memory<ExecutionSpace>, On> : DeepCopy<HostSpace, HostSpace, On> {
  using DeepCopy<HostSpace, HostSpace, On>::DeepCopy;
};
template <class ExecutionSpace, class On>
struct DeepCopy<minipipe::core::device_forms::Memory<ExecutionSpace>, minipipe::core::device_forms::Memory<ExecutionSpace>, On>
    : DeepCopy<HostSpace, HostSpace, On> {
  using DeepCopy<HostSpace, HostSpace, On>::DeepCopy;
};

}  // namespace Kokkos::Impl
