#pragma once

#include <Kokkos_Core.hpp>
#include <cstdlib>
#ifdef MINIPIPE_DEVICE_FORMS
#include "core/device_forms/guard.hpp"
#endif

namespace minipipe::tests {

// Where threads are not bound, Kokkos warns on standard output, which CTest reads when it asks a program for its tests.
inline void start_kokkos(int& argc, char** argv) {
  constexpr int keep = 0;
  setenv("OMP_PROC_BIND", "false", keep);
  Kokkos::initialize(argc, argv);
#ifdef MINIPIPE_DEVICE_FORMS
  core::device_forms::guard_kernel_memory();
#endif
}

}  // namespace minipipe::tests
