#pragma once

#include <vector>

#include "core/model/linear.hpp"
#include "core/model/norm.hpp"
#include "core/model/parameter_list.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Views of a stage's tensors in one flat buffer (its parameters, or their gradients), one after another in the list's order.
template <class T>
class TensorCursor {
 public:
  // `entries` is kept by reference.
  TensorCursor(const Vector<T>& buffer, const ModelConfig& model, const std::vector<ParameterEntry>& entries)
      : buffer_(buffer), kind_(architecture(model)), entries_(entries) {}

  // The tensors that follow lie in this buffer.
  void go_on_in(const Vector<T>& buffer) { buffer_ = buffer; }

  const Architecture& kind() const { return kind_; }
  Vector<T> vector() {
    const ParameterEntry& entry = entries_.at(next_++);
    return slice<T>(buffer_, entry.offset, entry.size);
  }
  Matrix<T> matrix() {
    const ParameterEntry& entry = entries_.at(next_++);
    return slice_matrix<T>(buffer_, entry.offset, entry.shape.at(0), entry.shape.at(1));
  }
  NormTensors<T> norm() {
    const Vector<T> weight = vector();
    return {weight, kind_.rms_norm ? Vector<T>() : vector()};
  }
  LinearTensors<T> linear() {
    const Matrix<T> weight = matrix();
    return {weight, kind_.biases ? vector() : Vector<T>()};
  }

 private:
  Vector<T> buffer_;
  Architecture kind_;
  const std::vector<ParameterEntry>& entries_;
  std::size_t next_ = 0;
};

}  // namespace minipipe::core
