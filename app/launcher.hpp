#pragma once

namespace minipipe::app {

// Throws InputError where this process is alone for MPI although its launcher (mpirun, srun) started several: the launcher and
// the MPI library do not speak the same protocol, and each process would do the whole work and write the same files.
// ranks: size of MPI_COMM_WORLD.
void check_launcher(int ranks);

}  // namespace minipipe::app
