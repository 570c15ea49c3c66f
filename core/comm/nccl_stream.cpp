#include "core/comm/nccl_stream.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include <utility>

#include "schedules/error.hpp"

namespace minipipe::core {

NcclStream::NcclStream(std::string name, int events)
    : name_(std::move(name)), events_(static_cast<std::size_t>(events), nullptr) {
  // Ahead of kernels that fill the GPU: a peer waits for what is enqueued here.
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  check(cudaEventCreateWithFlags(&followed_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  for (cudaEvent_t& event : events_) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
}

NcclStream::~NcclStream() {
  abort();
  for (cudaEvent_t event : events_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (followed_ != nullptr) cudaEventDestroy(followed_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void NcclStream::abort() noexcept {
  if (comm_ == nullptr) return;
  ncclCommAbort(comm_);
  comm_ = nullptr;
  cudaStreamSynchronize(stream_);
}

ncclUniqueId NcclStream::make_id() const {
  ncclUniqueId id{};
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

void NcclStream::connect(const ncclUniqueId& id, int ranks, int rank) {
  check(ncclCommInitRank(&comm_, ranks, id, rank), "ncclCommInitRank");
}

void NcclStream::follow(cudaStream_t other) {
  check(cudaEventRecord(followed_, other), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, followed_, 0), "cudaStreamWaitEvent");
}

void NcclStream::begin_group() { check(ncclGroupStart(), "ncclGroupStart"); }

void NcclStream::send(const float* data, std::size_t floats, int peer) {
  check(ncclSend(data, floats, ncclFloat, peer, comm_, stream_), "ncclSend");
}

void NcclStream::receive(float* data, std::size_t floats, int peer) {
  check(ncclRecv(data, floats, ncclFloat, peer, comm_, stream_), "ncclRecv");
}

void NcclStream::end_group() { check(ncclGroupEnd(), "ncclGroupEnd"); }

void NcclStream::mark(int event) {
  check(cudaEventRecord(events_.at(static_cast<std::size_t>(event)), stream_), "cudaEventRecord");
}

bool NcclStream::reached(int event) {
  const cudaError_t state = cudaEventQuery(events_.at(static_cast<std::size_t>(event)));
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
  ncclResult_t failure = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &failure), "ncclCommGetAsyncError");
  check(failure, "a message under way");
  return false;
}

void NcclStream::wait(const char* what) { check(cudaStreamSynchronize(stream_), what); }

void NcclStream::fail(const std::string& what) const { throw RunError(name_ + ": " + what); }

void NcclStream::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess) return;
  const char* last = ncclGetLastError(comm_);
  const std::string more = last != nullptr && *last != '\0' ? std::string(" (") + last + ")" : "";
  const std::string remedy =
      result == ncclInvalidUsage ? "; each rank needs a GPU of its own, otherwise use parallel.transport = \"mpi\"" : "";
  fail(std::string(what) + ": " + ncclGetErrorString(result) + more + remedy);
}

void NcclStream::check(cudaError_t result, const char* what) const {
  if (result != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace minipipe::core

#endif
