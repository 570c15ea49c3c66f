#include "core/comm/delayed_channel.hpp"

#include <chrono>
#include <cstring>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void require_stampable(const MessageBuffers& buffers) {
  if (buffers.elements() < 2) {
    throw InputError("emulate.message_bytes is too small for emulate.link_latency_ms: at least 8 bytes are needed");
  }
  if (buffers.staged() || buffers.host().data() == nullptr) {
    throw InputError(
        "emulate.link_latency_ms: messages in device memory cannot carry the stamps of an emulated link; use a build for the "
        "host (preset release)");
  }
}

}  // namespace

DelayedChannel::DelayedChannel(schedules::ReceiveChannel& inner, double latency_s, std::function<double()> clock,
                               std::function<double(int)> sent_at)
    : inner_(inner),
      latency_s_(latency_s),
      clock_(std::move(clock)),
      sent_at_(std::move(sent_at)),
      states_(static_cast<std::size_t>(inner.slots()), State::posted),
      due_(static_cast<std::size_t>(inner.slots()), 0.0) {
  posted_.reserve(states_.size());
}

void DelayedChannel::post(int slot) {
  inner_.post(slot);
  states_[static_cast<std::size_t>(slot)] = State::posted;
  posted_.push_back(slot);
}

// Looks for every message, so that one which nobody asks for yet is seen as early as possible.
void DelayedChannel::look() {
  while (!posted_.empty() && inner_.arrived(posted_.front())) {
    const int slot = posted_.front();
    posted_.erase(posted_.begin());
    states_[static_cast<std::size_t>(slot)] = State::on_its_way;
    due_[static_cast<std::size_t>(slot)] = (sent_at_ ? sent_at_(slot) : clock_()) + latency_s_;
  }
}

bool DelayedChannel::arrived(int slot) {
  const auto index = static_cast<std::size_t>(slot);
  if (states_[index] != State::arrived) {
    look();
    if (states_[index] == State::on_its_way && clock_() >= due_[index]) {
      states_[index] = State::arrived;
    }
  }
  return states_[index] == State::arrived;
}

std::function<void(int, double)> stamp_writer(const MessageBuffers& buffers) {
  require_stampable(buffers);
  return [buffers](int slot, double seconds) { std::memcpy(buffers.transport_slot(slot), &seconds, sizeof seconds); };
}

std::function<double(int)> stamp_reader(const MessageBuffers& buffers) {
  require_stampable(buffers);
  return [buffers](int slot) {
    double seconds = 0;
    std::memcpy(&seconds, buffers.transport_slot(slot), sizeof seconds);
    return seconds;
  };
}

double steady_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace minipipe::core
