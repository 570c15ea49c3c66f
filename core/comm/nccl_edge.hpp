#pragma once

#ifdef MINIPIPE_HAVE_NCCL

#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "core/comm/transport.hpp"

namespace minipipe::core {

// One end of a directed edge: a communicator of two, of which rank 0 sends, with a stream and one event for each slot.
class NcclEdge {
 public:
  enum class Role { sender, receiver };

  NcclEdge(EdgeEnd end, Role role, int slots);
  // Aborts what is under way: a receive whose message never comes would otherwise keep the device busy.
  ~NcclEdge();
  NcclEdge(const NcclEdge&) = delete;
  NcclEdge& operator=(const NcclEdge&) = delete;

  const EdgeEnd& end() const { return end_; }

  // Connects with the peer, which must do the same, and passes one number to set up what NCCL makes at the first message.
  // Waits. Throws RunError if the library fails.
  void join(MPI_Comm comm);

  // Enqueues the slot's message of `floats` floats in device memory.
  void start(int slot, float* data, std::size_t floats);
  // True once the slot's operation is done. Throws RunError if the library or the device failed.
  bool done(int slot);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void check_nccl(ncclResult_t result, const char* what) const;
  void check_cuda(cudaError_t result, const char* what) const;

  EdgeEnd end_;
  Role role_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

}  // namespace minipipe::core

#endif
