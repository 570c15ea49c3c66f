// A stream of messages on the host, by MPI: what NCCL's does on a device. Messages have one tag, so they meet in the order in
// which they are enqueued.
#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/comm/mpi_error.hpp"
#include "core/parallel/replica_link.hpp"
#include "core/parallel/stream_link.hpp"

namespace minipipe::core::test {

class HostLink : public StreamLink {
 public:
  explicit HostLink(MPI_Comm replicas) : replicas_(replicas) {}
  ~HostLink() override { abandon(receives_, sends_); }

  void join() override { comm_ = std::make_unique<Communicator>(Communicator::duplicate(replicas_)); }
  bool open() override {
    const bool received = completed(receives_);
    return completed(sends_) && received;
  }
  const ExecutionSpace& space() const override { return space_; }
  void follow(const ExecutionSpace& other) override { other.fence(); }

  void exchange(const std::vector<StreamMessage>& group) override {
    if (!open()) throw std::logic_error("kernels did not wait for the messages before them");
    receives_.clear();
    sends_.clear();
    for (const StreamMessage& message : group) {
      const bool sends = message.direction == StreamMessage::Direction::send;
      MPI_Request& request = (sends ? sends_ : receives_).emplace_back(MPI_REQUEST_NULL);
      const int floats = static_cast<int>(message.floats);
      check(sends ? MPI_Isend(message.data, floats, MPI_FLOAT, message.peer, 0, comm_->get(), &request)
                  : MPI_Irecv(message.data, floats, MPI_FLOAT, message.peer, 0, comm_->get(), &request),
            "a message of a stream");
    }
    ++groups_;
  }

  void mark(int slot) override { marks_[slot] = groups_; }
  bool reached(int slot) override { return open() || marks_.at(slot) < groups_; }

 private:
  MPI_Comm replicas_;
  std::unique_ptr<Communicator> comm_;
  ExecutionSpace space_;
  std::vector<MPI_Request> receives_, sends_;
  std::map<int, int> marks_;
  int groups_ = 0;
};

}  // namespace minipipe::core::test
