#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Collects broken rules of a deck; each is reported at the place where its key was set.
class Rules {
 public:
  explicit Rules(const Deck& deck) : deck_(deck) {}

  // "FILE:LINE: block.key = value: what" unless it holds. `what` states the rule and the remedy.
  void require(bool holds, std::string_view block, std::string_view key, const std::string& what);

  // A line of its own, which begins with a key; `key` is where its place is looked up.
  void add(std::string_view block, std::string_view key, const std::string& line);

  // A line per broken rule; empty if all hold.
  const std::string& text() const { return text_; }

 private:
  const Deck& deck_;
  std::string text_;
};

std::string str(std::int64_t value);

// "1 stage", "2 stages", "2 microbatches"
std::string plural(std::int64_t count, const std::string& noun);

// "0.50 KiB", "1.50 GiB"
std::string bytes_text(double bytes);

}  // namespace minipipe::core
