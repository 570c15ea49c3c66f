#pragma once

#include <Kokkos_Core.hpp>

namespace minipipe::core {

// A named phase for Kokkos Tools, ended by leaving the scope (also on the error path).
class Region {
 public:
  explicit Region(const char* name) { Kokkos::Profiling::pushRegion(name); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

}  // namespace minipipe::core
