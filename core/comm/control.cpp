#include "core/comm/control.hpp"

#include <algorithm>
#include <numeric>

#include "core/comm/nap.hpp"

namespace minipipe::core {

Control::Control(MPI_Comm parent)
    : comm_(Communicator::duplicate(parent)), sent_to_(static_cast<std::size_t>(comm_.size()), 0) {}

Control::~Control() {
  if (!mpi_is_active()) {
    return;
  }
  for (Outgoing& outgoing : outgoing_) {
    for (MPI_Request& request : outgoing.requests) {
      // Sixteen bytes are sent eagerly: the library has its own copy, and freeing the request is enough.
      if (request != MPI_REQUEST_NULL) {
        MPI_Request_free(&request);
      }
    }
  }
}

void Control::begin_segment(std::int64_t segment) {
  segment_ = segment;
  for (std::deque<Message>* messages : {&ends_, &admitted_}) {
    std::erase_if(*messages, [&](const Message& message) { return message.segment < segment_; });
  }
}

void Control::request_stop(StopReason reason) {
  if (stop_sent_) {
    return;
  }
  stop_sent_ = true;
  if (comm_.rank() != 0) {
    start_send({segment_, static_cast<std::int64_t>(reason)}, tag_stop, {0});
  } else if (stop_reason_ == StopReason::none) {
    stop_reason_ = reason;
  }
}

bool Control::poll_stop_request() {
  receive_all();
  return stop_reason_ != StopReason::none;
}

void Control::announce_end(std::int64_t end) {
  std::vector<int> others(static_cast<std::size_t>(comm_.size() - 1));
  std::iota(others.begin(), others.end(), 1);
  start_send({segment_, end}, tag_end, others);
}

std::optional<std::int64_t> Control::poll_end() {
  receive_all();
  const auto found =
      std::find_if(ends_.begin(), ends_.end(), [&](const Message& message) { return message.segment == segment_; });
  if (found == ends_.end()) {
    return std::nullopt;
  }
  const std::int64_t end = found->value;
  ends_.erase(found);
  return end;
}

void Control::admit(std::int64_t end, const std::vector<int>& ranks) { start_send({segment_, end}, tag_admit, ranks); }

std::optional<std::int64_t> Control::poll_admitted() {
  receive_all();
  std::optional<std::int64_t> end;
  std::erase_if(admitted_, [&](const Message& message) {
    if (message.segment != segment_) return false;
    end = std::max(end.value_or(message.value), message.value);
    return true;
  });
  return end;
}

void Control::start_send(Message message, Tag tag, const std::vector<int>& peers) {
  forget_completed();
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.message = message;
  for (const int peer : peers) {
    MPI_Request& request = outgoing.requests.emplace_back(MPI_REQUEST_NULL);
    check(MPI_Isend(&outgoing.message, 2, MPI_INT64_T, peer, tag, comm_.get(), &request), "MPI_Isend of a control message");
    ++sent_to_[static_cast<std::size_t>(peer)];
  }
}

void Control::forget_completed() {
  while (!outgoing_.empty()) {
    auto& requests = outgoing_.front().requests;
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done == 0) {
      return;
    }
    outgoing_.pop_front();
  }
}

bool Control::receive_one() {
  int there = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_.get(), &there, &status), "MPI_Iprobe of control messages");
  if (there == 0) {
    return false;
  }
  Message message{};
  check(MPI_Recv(&message, 2, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, comm_.get(), MPI_STATUS_IGNORE),
        "MPI_Recv of a control message");
  ++received_;
  if (status.MPI_TAG == tag_stop) {
    if (stop_reason_ == StopReason::none) {
      stop_reason_ = static_cast<StopReason>(message.value);
    }
  } else if (message.segment >= segment_) {
    (status.MPI_TAG == tag_end ? ends_ : admitted_).push_back(message);
  }
  return true;
}

void Control::receive_all() {
  while (receive_one()) {
  }
}

void Control::finish() {
  std::vector<std::int64_t> expected = sent_to_;
  check(MPI_Allreduce(MPI_IN_PLACE, expected.data(), comm_.size(), MPI_INT64_T, MPI_SUM, comm_.get()), "MPI_Allreduce");
  Nap nap;
  while (received_ < expected[static_cast<std::size_t>(comm_.rank())]) {
    receive_one() ? nap.reset() : static_cast<void>(nap.idle());
  }
  for (Outgoing& outgoing : outgoing_) {
    check(MPI_Waitall(static_cast<int>(outgoing.requests.size()), outgoing.requests.data(), MPI_STATUSES_IGNORE),
          "MPI_Waitall");
  }
  outgoing_.clear();
  ends_.clear();
  admitted_.clear();
}

}  // namespace minipipe::core
