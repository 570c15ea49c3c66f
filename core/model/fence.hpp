#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// The stage's name of fence (core/types/types.hpp).
inline void fence_instance(const ExecutionSpace& space, const char* reason) { fence(space, reason); }

}  // namespace minipipe::core
