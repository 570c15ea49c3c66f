#pragma once

#include <cstddef>

namespace minipipe::core {

// Arrays inside one allocation start at multiples of 64 bytes: libraries choose kernels by alignment, and results must not
// depend on what lies before an array.
constexpr std::size_t padded(std::size_t floats) { return (floats + 15) / 16 * 16; }

// Hands out consecutive padded ranges of one allocation.
class Layout {
 public:
  std::size_t take(std::size_t floats) {
    const std::size_t offset = end_;
    end_ += padded(floats);
    return offset;
  }
  std::size_t end() const { return end_; }
  // What comes next lies behind the other layout, too.
  void go_behind(const Layout& other) { end_ = end_ < other.end_ ? other.end_ : end_; }

 private:
  std::size_t end_ = 0;
};

}  // namespace minipipe::core
