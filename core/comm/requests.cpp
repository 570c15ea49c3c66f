#include "core/comm/requests.hpp"

#include <chrono>

#include "core/comm/nap.hpp"

namespace minipipe::core {

bool settle_or_free(std::vector<MPI_Request>& requests, double grace_s) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::duration<double>(grace_s);
  Nap nap;
  int done = 0;
  while (true) {
    const int rc = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (rc != MPI_SUCCESS || done != 0 || Clock::now() > limit) {
      break;
    }
    nap.idle();
  }
  bool all = true;
  for (MPI_Request& request : requests) {
    if (request != MPI_REQUEST_NULL) {
      all = false;
      MPI_Request_free(&request);
    }
  }
  return all;
}

}  // namespace minipipe::core
