#pragma once

namespace minipipe::core {

// Ends this process with `status` and, where the launcher cooperates, all other ranks. For failures on one rank while the
// others wait in communication. A timer ends the process after three seconds even if MPI_Abort never returns: some launchers
// do not complete an abort. Callable from any thread, before MPI_Init and after MPI_Finalize. Runs no destructors.
[[noreturn]] void abort_job(int status);

}  // namespace minipipe::core
