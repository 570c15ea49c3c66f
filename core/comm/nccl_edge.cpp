#include "core/comm/nccl_edge.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include <Kokkos_Core.hpp>

#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

NcclEdge::NcclEdge(EdgeEnd end, Role role, int slots) : end_(end), role_(role) {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  events_.resize(static_cast<std::size_t>(slots));
  for (cudaEvent_t& event : events_) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
}

NcclEdge::~NcclEdge() {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  for (cudaEvent_t event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void NcclEdge::join(MPI_Comm comm) {
  ncclUniqueId id{};
  if (role_ == Role::sender) {
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    check(MPI_Send(&id, sizeof id, MPI_BYTE, end_.peer, end_.tag, comm), "MPI_Send of an edge's name");
  } else {
    check(MPI_Recv(&id, sizeof id, MPI_BYTE, end_.peer, end_.tag, comm, MPI_STATUS_IGNORE), "MPI_Recv of an edge's name");
  }
  check_nccl(ncclCommInitRank(&comm_, 2, id, role_ == Role::sender ? 0 : 1), "ncclCommInitRank");
  const Kokkos::View<float*, Kokkos::DefaultExecutionSpace::memory_space> number("minipipe::comm::first_message", 1);
  start(0, number.data(), 1);
  check_cuda(cudaStreamSynchronize(stream_), "the first message");
}

void NcclEdge::start(int slot, float* data, std::size_t floats) {
  if (role_ == Role::sender) {
    check_nccl(ncclSend(data, floats, ncclFloat, 1, comm_, stream_), "ncclSend");
  } else {
    check_nccl(ncclRecv(data, floats, ncclFloat, 0, comm_, stream_), "ncclRecv");
  }
  check_cuda(cudaEventRecord(events_.at(static_cast<std::size_t>(slot)), stream_), "cudaEventRecord");
}

bool NcclEdge::done(int slot) {
  const cudaError_t state = cudaEventQuery(events_.at(static_cast<std::size_t>(slot)));
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
  ncclResult_t failure = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &failure), "ncclCommGetAsyncError");
  check_nccl(failure, "a message under way");
  return false;
}

void NcclEdge::fail(const std::string& what) const {
  throw RunError("NCCL edge with rank " + std::to_string(end_.peer) + ", tag " + std::to_string(end_.tag) + ": " + what);
}

void NcclEdge::check_nccl(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  const std::string remedy =
      result == ncclInvalidUsage ? "; each rank needs a GPU of its own, otherwise use parallel.transport = \"mpi\"" : "";
  fail(std::string(what) + ": " + ncclGetErrorString(result) + remedy);
}

void NcclEdge::check_cuda(cudaError_t result, const char* what) const {
  if (result != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace minipipe::core

#endif
