#include "schedules/simulate/message_waits.hpp"

#include <algorithm>

namespace minipipe::schedules {
namespace {

bool makes_gradient(Kind kind) { return kind == Kind::backward || kind == Kind::backward_input; }

// When the messages of a stage were sent, by their order: an edge delivers them in the order they are sent.
struct Sent {
  std::vector<double> activations, gradients;
};

std::vector<Sent> sent_by_stage(const Log& log, int stages) {
  std::vector<Sent> sent(static_cast<std::size_t>(stages));
  for (const ActionLog& rank : log.ranks) {
    for (const LoggedAction& entry : rank) {
      Sent& stage = sent[static_cast<std::size_t>(entry.action.stage)];
      if (entry.action.kind == Kind::forward) stage.activations.push_back(entry.end_s);
      if (makes_gradient(entry.action.kind)) stage.gradients.push_back(entry.end_s);
    }
  }
  return sent;
}

}  // namespace

MessageWaits& MessageWaits::operator+=(const MessageWaits& other) {
  received += other.received;
  hidden += other.hidden;
  seconds += other.seconds;
  return *this;
}

std::vector<MessageWaits> message_waits(const Log& log, const Placement& placement) {
  struct Read {
    std::size_t activations = 0, gradients = 0;
  };
  const std::vector<Sent> sent = sent_by_stage(log, placement.stages());
  std::vector<Read> read(sent.size());
  std::vector<MessageWaits> result(log.ranks.size());
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    for (const LoggedAction& entry : log.ranks[rank]) {
      const int stage = entry.action.stage;
      const bool forward = entry.action.kind == Kind::forward;
      if (!forward && !makes_gradient(entry.action.kind)) continue;
      const int from = forward ? stage - 1 : stage + 1;
      if (from < 0 || from >= placement.stages() || placement.rank_of(from) == placement.rank_of(stage)) continue;
      Read& taken = read[static_cast<std::size_t>(stage)];
      const Sent& source = sent[static_cast<std::size_t>(from)];
      const double sent_s = forward ? source.activations.at(taken.activations++) : source.gradients.at(taken.gradients++);
      MessageWaits& waits = result[rank];
      ++waits.received;
      if (entry.waited_s > 0) {
        waits.seconds += std::clamp(entry.start_s - sent_s, 0.0, entry.waited_s);
      } else {
        ++waits.hidden;
      }
    }
  }
  return result;
}

}  // namespace minipipe::schedules
