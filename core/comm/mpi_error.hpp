#pragma once

#include <mpi.h>

#include <string_view>

namespace minipipe::core {

// Throws RunError with `what` and the MPI library's own text unless `rc` is MPI_SUCCESS. Only communicators made by
// Communicator return errors at all; the default handler of MPI_COMM_WORLD ends the job inside the call.
void check(int rc, std::string_view what);

// Owns one communicator and frees it. Errors on it are returned (MPI_ERRORS_RETURN), so that check() sees them.
class Communicator {
 public:
  Communicator() = default;
  ~Communicator();
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Both are collective over `parent`. split: ranks with the same colour share one, ordered by key.
  static Communicator duplicate(MPI_Comm parent);
  static Communicator split(MPI_Comm parent, int color, int key);

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  explicit Communicator(MPI_Comm owned);
  void release() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
};

// True between MPI_Init and MPI_Finalize: what destructors ask before they touch MPI.
bool mpi_is_active();

}  // namespace minipipe::core
