#include "app/launcher.hpp"

#include <cstdlib>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::app {

void check_launcher(int ranks) {
  if (ranks > 1) return;
  // Of Open MPI's mpirun; of PMI (Hydra, srun --mpi=pmi2); of srun, unless it has started the daemons of an mpirun.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    if (std::atoi(text) > 1) {
      throw InputError(std::string("the launcher started ") + text + " processes (" + name +
                       "), but MPI sees each of them alone; start them with what the MPI library speaks: srun --mpi=pmix or " +
                       "--mpi=pmi2 (MINIPIPE_MPI in the batch scripts), or the mpirun of that library (MINIPIPE_LAUNCHER)");
    }
    return;
  }
}

}  // namespace minipipe::app
