#include "core/comm/mpi_error.hpp"

#include <array>
#include <string>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::core {

void check(int rc, std::string_view what) {
  if (rc == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(rc, text.data(), &length);
  throw RunError(std::string(what) + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

bool mpi_is_active() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

Communicator::Communicator(MPI_Comm owned) : comm_(owned) {
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

Communicator::~Communicator() { release(); }

Communicator::Communicator(Communicator&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
      rank_(std::exchange(other.rank_, 0)),
      size_(std::exchange(other.size_, 0)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    release();
    comm_ = std::exchange(other.comm_, MPI_COMM_NULL);
    rank_ = std::exchange(other.rank_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void Communicator::release() noexcept {
  if (comm_ != MPI_COMM_NULL && mpi_is_active()) {
    MPI_Comm_free(&comm_);
  }
  comm_ = MPI_COMM_NULL;
}

Communicator Communicator::duplicate(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  return Communicator(comm);
}

Communicator Communicator::split(MPI_Comm parent, int color, int key) {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_split(parent, color, key, &comm), "MPI_Comm_split");
  return Communicator(comm);
}

}  // namespace minipipe::core
