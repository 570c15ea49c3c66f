#pragma once

#include <cstddef>
#include <string>

#include "core/types/types.hpp"

namespace minipipe::core {

// `slots` equal pieces of one allocation, made once: a steady step allocates nothing.
template <class T>
class SlotArena {
 public:
  SlotArena(const std::string& label, std::int64_t slots, std::size_t size)
      : slots_(slots), size_(size), memory_(label, static_cast<std::size_t>(slots) * size) {}

  std::int64_t slots() const { return slots_; }
  Vector<T> slot(std::int64_t index) const {
    return Vector<T>(memory_.data() + static_cast<std::size_t>(index) * size_, size_);
  }
  const OwnedVector<T>& memory() const { return memory_; }
  std::size_t bytes() const { return memory_.size() * sizeof(T); }

 private:
  std::int64_t slots_;
  std::size_t size_;
  OwnedVector<T> memory_;
};

using ActivationArena = SlotArena<float>;

}  // namespace minipipe::core
