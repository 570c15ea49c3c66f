#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include "core/types/bf16.hpp"
#ifdef MINIPIPE_DEVICE_FORMS
#include "core/device_forms/memory.hpp"
#include "core/device_forms/team.hpp"
#endif

namespace minipipe::core {

// Where kernels run: CMake's MINIPIPE_DEVICE, or what Kokkos prefers.
#if defined(MINIPIPE_DEVICE_SERIAL)
using ExecutionSpace = Kokkos::Serial;
#elif defined(MINIPIPE_DEVICE_OPENMP)
using ExecutionSpace = Kokkos::OpenMP;
#else
using ExecutionSpace = Kokkos::DefaultExecutionSpace;
#endif
using HostSpace = Kokkos::HostSpace;
#ifdef MINIPIPE_DEVICE_FORMS
using MemorySpace = device_forms::Memory<ExecutionSpace>;
#else
using MemorySpace = ExecutionSpace::memory_space;
#endif
// Host memory that copies to and from a device go through at full speed and without waiting.
#ifdef KOKKOS_ENABLE_CUDA
using StagingSpace = std::conditional_t<std::is_same_v<MemorySpace, HostSpace>, HostSpace, Kokkos::CudaHostPinnedSpace>;
#else
using StagingSpace = HostSpace;
#endif

// True if kernels' memory is the host's and kernels take their forms for the host: there a team is one thread and inner loops
// are plain vector loops. Otherwise kernels take their forms for a device and memory is copied to and from.
inline constexpr bool on_host = std::is_same_v<MemorySpace, HostSpace>;
// True if the host's libraries can work on kernels' memory: also where kernels' device forms run on the host (CMake's
// MINIPIPE_DEVICE_FORMS).
inline constexpr bool host_reaches = Kokkos::SpaceAccessibility<HostSpace, MemorySpace>::accessible;

// In which type activations, their gradients, the weights as passes use them and messages are stored. Parameters, their
// gradients and the optimizer's moments are fp32 either way.
enum class Precision { fp32, bf16 };

// Arrays as kernels see them: contiguous, row-major, owned elsewhere. Any contiguous LayoutRight view converts to these.
using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, MemorySpace, Unmanaged>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, MemorySpace, Unmanaged>;
template <class T>
using Tensor3 = Kokkos::View<T***, Kokkos::LayoutRight, MemorySpace, Unmanaged>;
template <class T>
using ConstVector = Vector<const T>;
template <class T>
using ConstMatrix = Matrix<const T>;
template <class T>
using ConstTensor3 = Tensor3<const T>;

// The same with ownership.
template <class T>
using OwnedVector = Kokkos::View<T*, Kokkos::LayoutRight, MemorySpace>;
template <class T>
using OwnedMatrix = Kokkos::View<T**, Kokkos::LayoutRight, MemorySpace>;
// In host memory.
template <class T>
using OwnedHostVector = Kokkos::View<T*, Kokkos::LayoutRight, HostSpace>;

// The type in which kernels compute with values stored as T. Also that of what goes with such values but is not stored in
// reduced precision: vectors of parameters, gradients of parameters, statistics of norms and softmax, losses.
template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<bf16> {
  using type = float;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// The value as T stores it. (Local variables of type bf16 keep compilers from making vector code.)
template <class T>
KOKKOS_INLINE_FUNCTION Compute<T> as_stored(Compute<T> value) {
  return static_cast<Compute<T>>(static_cast<T>(value));
}

// All elements of a contiguous view as a vector. Takes no ownership.
template <class View>
Vector<typename View::value_type> flatten(const View& view) {
  return Vector<typename View::value_type>(view.data(), view.size());
}

// A part of a vector: count elements from offset on.
template <class T>
Vector<T> slice(const Vector<T>& vector, std::int64_t offset, std::int64_t count) {
  return Vector<T>(vector.data() + offset, static_cast<std::size_t>(count));
}

// rows x columns elements of a vector from offset on, as a matrix.
template <class T>
Matrix<T> slice_matrix(const Vector<T>& vector, std::int64_t offset, std::int64_t rows, std::int64_t columns) {
  return Matrix<T>(vector.data() + offset, static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

// Waits for everything enqueued on the instance. `reason` reads "before <what>, because <why>"; profiling tools show it where
// Kokkos takes one (from 3.5 on).
template <class Space>
void fence(const Space& space, [[maybe_unused]] const char* reason) {
  if constexpr (requires { space.fence(reason); }) {
    space.fence(reason);
  } else {
    space.fence();
  }
}

using RowRange = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
#ifdef MINIPIPE_DEVICE_FORMS
using TeamPolicy = device_forms::TeamPolicy<ExecutionSpace>;
#else
using TeamPolicy = Kokkos::TeamPolicy<ExecutionSpace>;
#endif
using TeamMember = TeamPolicy::member_type;

}  // namespace minipipe::core
