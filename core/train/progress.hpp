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

  // After each update: its number (counting from 1), its loss and the seconds since the run began.
  void update(std::int64_t step, double loss, double elapsed_s);
  void validation(std::int64_t step, double loss);
  // A line of its own, without tearing the bar.
  void line(const std::string& text);
  void finish();

 private:
  enum class Style { none, lines, bar };
  void draw_bar(std::int64_t step, double loss, double tokens_per_s, double left_s);

  Style style_;
  std::string name_;
  std::int64_t steps_;
  std::int64_t first_;
  std::int64_t interval_;
  std::int64_t tokens_per_update_;
  double drawn_at_ = -1;
  bool bar_open_ = false;
};

}  // namespace minipipe::core
