// Tests that use MPI-based code (parallel HDF5, collectives) on one rank, without a launcher.
#include <gtest/gtest.h>
#include <mpi.h>

#include "unit_tests/support/start_kokkos.hpp"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  minipipe::tests::start_kokkos(argc, argv);
  const int status = RUN_ALL_TESTS();
  Kokkos::finalize();
  MPI_Finalize();
  return status;
}
