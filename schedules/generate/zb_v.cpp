#include <algorithm>
#include <array>

#include "schedules/generate/generators.hpp"

namespace minipipe::schedules {
namespace {

// One rank's row: chunk 0 goes down the V, chunk 1 comes back up.
class VeeRow {
 public:
  VeeRow(int ranks, int rank, std::int64_t m)
      : ranks_(ranks), rank_(rank), m_(m), total_(std::max<std::int64_t>(m, 2 * ranks - 1)) {}

  ActionList run() {
    // Warm-up: fill the way down, then both ways, until the first gradient is due; the turning rank has it at once.
    repeat(2 * (ranks_ - rank_) - 1, [&] { forward(0); });
    repeat(rank_, [&] {
      forward(1);
      forward(0);
    });
    repeat(ranks_ - rank_, [&] {
      forward(1);
      whole_backward(1);
    });
    // Steady: one forward and one backward of each chunk in turns.
    while (forwards_[1] < total_) {
      forward(0);
      whole_backward(0);
      forward(1);
      whole_backward(1);
    }
    // Cool-down: input gradients on which others wait come first, weight gradients fill the rest.
    repeat(rank_, [&] {
      input(0);
      input(1);
    });
    repeat(ranks_ - rank_, [&] {
      input(0);
      weight(0);
    });
    repeat(total_ - weights_[1], [&] { weight(1); });
    repeat(total_ - weights_[0], [&] { weight(0); });
    for (const int chunk : {0, 1}) list_.push_back({Kind::update, stage(chunk), 0});
    return std::move(list_);
  }

 private:
  template <class Body>
  static void repeat(std::int64_t times, Body body) {
    for (std::int64_t k = 0; k < times; ++k) body();
  }

  int stage(int chunk) const { return chunk == 0 ? rank_ : 2 * ranks_ - 1 - rank_; }

  void add(Kind kind, int chunk, std::array<std::int64_t, 2>& count) {
    std::int64_t& next = count[static_cast<std::size_t>(chunk)];
    if (next >= total_) return;
    if (next < m_) list_.push_back({kind, stage(chunk), next});
    ++next;
  }
  void forward(int chunk) { add(Kind::forward, chunk, forwards_); }
  void input(int chunk) { add(Kind::backward_input, chunk, inputs_); }
  void weight(int chunk) { add(Kind::backward_weight, chunk, weights_); }
  void whole_backward(int chunk) {
    input(chunk);
    weight(chunk);
  }

  int ranks_, rank_;
  std::int64_t m_, total_;
  std::array<std::int64_t, 2> forwards_{}, inputs_{}, weights_{};
  ActionList list_;
};

}  // namespace

Plan zb_v_update(int ranks, std::int64_t m) {
  Plan plan;
  for (int rank = 0; rank < ranks; ++rank) plan.ranks.push_back(VeeRow(ranks, rank, m).run());
  return plan;
}

}  // namespace minipipe::schedules
