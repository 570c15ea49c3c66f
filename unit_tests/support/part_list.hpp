#pragma once

#include <algorithm>
#include <vector>

#include "core/io/checkpoint.hpp"

namespace minipipe::core::testing {

// A part's values out of the whole tensor's.
inline std::vector<float> part_of(const std::vector<float>& tensor, const TensorPart& part) {
  const Rectangle& inner = part.rectangle;
  const std::size_t columns = static_cast<std::size_t>(part.shape.back());
  std::vector<float> values;
  for (std::size_t i = 0; i < inner.rows * inner.columns; ++i) {
    const std::size_t row = inner.row + i / inner.columns;
    values.push_back(tensor.at(row * columns + inner.column + i % inner.columns));
  }
  return values;
}

// Parts of tensors with their values.
class PartList {
 public:
  // `tensor`: all of its values. A part that does not lie in it gets zeros.
  void add(const TensorPart& part, const std::vector<float>& tensor) {
    parts_.push_back(part);
    const std::size_t needed = part.rectangle.rows == 0 || part.rectangle.columns == 0
                                   ? 0
                                   : (part.rectangle.row + part.rectangle.rows - 1) * part.shape.back() +
                                         part.rectangle.column + part.rectangle.columns;
    std::vector<float> whole = tensor;
    whole.resize(std::max(whole.size(), needed));
    values_.push_back(part_of(whole, part));
  }
  const std::vector<TensorPart>& parts() const { return parts_; }
  CopyPart copy() const {
    return [this](std::size_t part, float* to) { std::copy(values_.at(part).begin(), values_.at(part).end(), to); };
  }

 private:
  std::vector<TensorPart> parts_;
  std::vector<std::vector<float>> values_;
};

}  // namespace minipipe::core::testing
