#include <gtest/gtest.h>

#include "unit_tests/support/start_kokkos.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  minipipe::tests::start_kokkos(argc, argv);
  const int status = RUN_ALL_TESTS();
  Kokkos::finalize();
  return status;
}
