#pragma once

namespace minipipe::core::device_forms {

// From here on the address sanitizer reports whatever reads or writes the kernels' memory elsewhere than in a kernel or in a
// copy by Kokkos or in a matrix product (what other libraries do that are not compiled with it is not seen). Uses Kokkos Tools'
// callbacks; call it after Kokkos is initialised, before memory is allocated. Without the sanitizer it does nothing.
void guard_kernel_memory();

}  // namespace minipipe::core::device_forms
