#pragma once

#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

namespace minipipe::core::checkpoint {

// RunError that names `what` unless `rc` is MPI_SUCCESS. (core/io knows nothing of core/comm, which needs Kokkos.)
void require_sent(int rc, const char* what);

// The ranks that write a checkpoint. All calls but the getters are collective; RunError if MPI fails.
class Ranks {
 public:
  explicit Ranks(MPI_Comm comm);
  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }

  // Runs `work` here; afterwards all ranks return, or all throw a RunError with the text of the lowest rank on which it failed.
  void together(const std::function<void()>& work) const;

  // The texts of all ranks, in rank order, on rank 0; nothing elsewhere. RunError on all ranks if they are 2 GiB or more.
  std::vector<std::string> gather(const std::string& text) const;

  // Rank 0's text.
  std::string broadcast(std::string text) const;

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace minipipe::core::checkpoint
