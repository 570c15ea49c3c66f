#include "core/comm/abort_job.hpp"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

void abort_job(int status) {
  try {
    std::thread([status] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      _exit(status);
    }).detach();
  } catch (...) {
    _exit(status);  // no thread to be had: leaving without MPI_Abort is better than the risk to hang in it
  }
  std::fflush(nullptr);
  if (mpi_is_active()) {
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  _exit(status);
}

}  // namespace minipipe::core
