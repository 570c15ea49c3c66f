#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Waits for the work of one instance. `reason` reads "before <what>, because <why>"; Kokkos Tools show it from Kokkos 3.5 on.
inline void fence_instance(const ExecutionSpace& space, [[maybe_unused]] const char* reason) {
#if KOKKOS_VERSION >= 30500
  space.fence(reason);
#else
  space.fence();
#endif
}

}  // namespace minipipe::core
