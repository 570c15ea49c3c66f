#pragma once

#include <cstdint>
#include <string>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Tells the user how the run goes: a bar that is redrawn on a terminal, plain lines otherwise. Used on the rank of the last
// stage, which has the losses.
class Progress {
 public:
  // `first_update`: updates done before this process began.
  Progress(const Deck& deck, std::int64_t first_update, std::int64_t tokens_per_update);

  // After each update: its number (counting from 1), its loss and the seconds since the run began. With replicas the loss is
  // that of the first one, and is shown as such: the mean is known only once the segment's losses have been gathered.
  void update(std::int64_t step, double loss, double elapsed_s);
  void validation(std::int64_t step, double loss);
  // A line of its own, without tearing the bar.
  void line(const std::string& text);
  void finish();

 private:
  enum class Style { none, lines, bar };
  std::string loss_text(double loss) const;
  void draw_bar(std::int64_t step, double loss, double tokens_per_s, double left_s);

  Style style_;
  std::string name_;
  std::string loss_label_;  // empty: an emulated run has no loss
  std::int64_t steps_;
  std::int64_t first_;
  std::int64_t interval_;
  std::int64_t tokens_per_update_;
  double drawn_at_ = -1;
  bool bar_open_ = false;
};

}  // namespace minipipe::core
