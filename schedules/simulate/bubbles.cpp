#include "schedules/simulate/bubbles.hpp"

#include <algorithm>
#include <limits>

namespace minipipe::schedules {
namespace {

double overlap(double begin, double end, double from, double to) {
  return std::max(0.0, std::min(end, to) - std::max(begin, from));
}

bool is_backward(Kind kind) { return kind == Kind::backward || kind == Kind::backward_input; }

}  // namespace

std::vector<BubbleSplit> bubble_split(const Log& log) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double begin = kNever, end = -kNever, first_backward = kNever, last_forward = -kNever;
  for (const ActionLog& rank : log.ranks) {
    for (const LoggedAction& entry : rank) {
      if (entry.action.kind == Kind::drain) continue;
      begin = std::min(begin, entry.start_s);
      end = std::max(end, entry.end_s);
      if (is_backward(entry.action.kind)) first_backward = std::min(first_backward, entry.start_s);
      if (entry.action.kind == Kind::forward) last_forward = std::max(last_forward, entry.end_s);
    }
  }
  std::vector<BubbleSplit> result(log.ranks.size());
  if (begin > end) return result;
  const double warm_end = std::min(first_backward, end);
  const double cool_begin = std::max(last_forward, warm_end);
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    const auto idle = [&](double from, double to) {
      result[rank].warm_up += overlap(from, to, begin, warm_end);
      result[rank].residual += overlap(from, to, warm_end, cool_begin);
      result[rank].cool_down += overlap(from, to, cool_begin, end);
    };
    double free = begin;
    for (const LoggedAction& entry : log.ranks[rank]) {
      if (entry.action.kind == Kind::drain) continue;
      idle(free, entry.start_s);
      free = std::max(free, entry.end_s);
    }
    idle(free, end);
  }
  return result;
}

}  // namespace minipipe::schedules
