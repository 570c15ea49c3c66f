#pragma once

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <vector>

#include "core/comm/message_buffers.hpp"
#include "schedules/exec/channel.hpp"

namespace minipipe::core {

// All edges of a pipeline share one duplicated communicator; a tag names the edge and its direction, so that edges stay apart
// even when several stages sit on one rank. MPI keeps messages of one (sender, receiver, tag) in order.
enum class Direction { activation, gradient };

// Tag of the edge between stages `lower_stage` and `lower_stage + 1`.
constexpr int edge_tag(int lower_stage, Direction direction) {
  return 2 * lower_stage + (direction == Direction::gradient ? 1 : 0);
}

// Non-blocking sends from the slots of `buffers`. Copies the Views: their memory lives at least as long as the channel.
// `instance` carries the copies of staged buffers; a stage must have completed its writes (Stage::complete_output) before.
// Constructors throw InputError if a message has more elements than MPI can count.
class MpiSendChannel : public schedules::SendChannel {
 public:
  MpiSendChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers, const ExecutionSpace& instance = {});
  // Adds the bytes of each message to `sent_bytes`, which must outlive the channel.
  MpiSendChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers, std::int64_t& sent_bytes);
  // Gives sends that are under way a short time to complete. If the peer never takes them, their memory is left allocated.
  ~MpiSendChannel() override;
  MpiSendChannel(const MpiSendChannel&) = delete;
  MpiSendChannel& operator=(const MpiSendChannel&) = delete;

  int slots() const override { return buffers_.slots(); }
  void send(int slot) override;
  bool sent(int slot) override;

 private:
  MPI_Comm comm_;
  int peer_;
  int tag_;
  MessageBuffers buffers_;
  ExecutionSpace instance_;
  std::vector<MPI_Request> requests_;
  std::int64_t* sent_bytes_ = nullptr;
};

// Receives posted ahead into the slots of `buffers`. A slot that has arrived stays so until it is posted again.
// A message of another length than the buffers' is a RunError.
class MpiReceiveChannel : public schedules::ReceiveChannel {
 public:
  MpiReceiveChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers, const ExecutionSpace& instance = {});
  // Cancels the posted receives, or else MPI_Finalize would wait for messages that nobody sends. Until then they take messages:
  // a peer may send through a new channel of the same communicator and tag only after this (a barrier, a new communicator).
  ~MpiReceiveChannel() override;
  MpiReceiveChannel(const MpiReceiveChannel&) = delete;
  MpiReceiveChannel& operator=(const MpiReceiveChannel&) = delete;

  int slots() const override { return buffers_.slots(); }
  void post(int slot) override;
  bool arrived(int slot) override;

 private:
  MPI_Comm comm_;
  int peer_;
  int tag_;
  MessageBuffers buffers_;
  ExecutionSpace instance_;
  std::vector<MPI_Request> requests_;
  std::vector<char> full_;
};

}  // namespace minipipe::core
