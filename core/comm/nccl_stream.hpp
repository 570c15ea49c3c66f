#pragma once

#ifdef MINIPIPE_HAVE_NCCL

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

namespace minipipe::core {

// A communicator with a stream of its own, on which its messages are enqueued, and events that tell when they are done. Every
// error is a RunError that begins with the name.
class NcclStream {
 public:
  // `name` says what for ("NCCL edge with rank 3").
  NcclStream(std::string name, int events);
  ~NcclStream();
  NcclStream(const NcclStream&) = delete;
  NcclStream& operator=(const NcclStream&) = delete;

  // What rank 0 gives to the others, for connect.
  ncclUniqueId make_id() const;
  // Collective over the ranks of the communicator. Waits.
  void connect(const ncclUniqueId& id, int ranks, int rank);

  // Ends all messages, those under way, too, and waits until the device no longer touches memory for them: a receive whose
  // message never comes would otherwise keep the device busy, and whoever frees memory waiting. Not collective, so peers must
  // have had what they were sent. Nothing if it was called before.
  void abort() noexcept;

  cudaStream_t stream() const { return stream_; }

  // What is enqueued from now on waits for what is enqueued on `other` now.
  void follow(cudaStream_t other);
  // Enqueued. Between begin_group and end_group messages are on their way all at once.
  void begin_group();
  void send(const float* data, std::size_t floats, int peer);
  void receive(float* data, std::size_t floats, int peer);
  void end_group();

  // Puts the event behind what is enqueued.
  void mark(int event);
  // True once all before the event's last mark is done.
  bool reached(int event);
  // Waits for all that is enqueued. For setting up only.
  void wait(const char* what);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void check(ncclResult_t result, const char* what) const;
  void check(cudaError_t result, const char* what) const;

  std::string name_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t followed_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

}  // namespace minipipe::core

#endif
