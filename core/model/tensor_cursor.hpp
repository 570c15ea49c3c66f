#pragma once

#include <vector>

#include "core/model/linear.hpp"
#include "core/model/norm.hpp"
#include "core/model/parameter_list.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Matrices of type T that are kept apart from the vectors, because they are stored narrower.
template <class T>
struct MatrixCopies {
  std::vector<Vector<T>> buffers;    // by layer
  std::vector<std::size_t> offsets;  // by entry of the list; elements from the start of the layer's buffer
};

// Views of a stage's tensors in one flat buffer (its parameters, or their gradients), one after another in the list's order.
template <class T>
class TensorCursor {
 public:
  // `entries` is kept by reference.
  TensorCursor(const Vector<Compute<T>>& buffer, const ModelConfig& model, const std::vector<ParameterEntry>& entries)
      : buffer_(buffer), kind_(architecture(model)), entries_(entries) {}

  // The tensors that follow lie in this buffer.
  void go_on_in(const Vector<Compute<T>>& buffer) { buffer_ = buffer; }
  // Its matrices are these. Needed where T is not Compute<T>; `copies` is kept by reference.
  void matrices_in(const MatrixCopies<T>& copies, int layer) {
    copies_ = &copies;
    layer_ = static_cast<std::size_t>(layer);
  }

  const Architecture& kind() const { return kind_; }
  Vector<Compute<T>> vector() {
    const ParameterEntry& entry = entries_.at(next_++);
    return slice(buffer_, entry.offset, entry.size);
  }
  Matrix<T> matrix() {
    const std::size_t number = next_++;
    const ParameterEntry& entry = entries_.at(number);
    if constexpr (std::is_same_v<T, Compute<T>>) {
      return slice_matrix(buffer_, entry.offset, entry.shape.at(0), entry.shape.at(1));
    } else {
      return slice_matrix(copies_->buffers.at(layer_), copies_->offsets.at(number), entry.shape.at(0), entry.shape.at(1));
    }
  }
  NormTensors<T> norm() {
    const Vector<Compute<T>> weight = vector();
    return {weight, kind_.rms_norm ? Vector<Compute<T>>() : vector()};
  }
  LinearTensors<T> linear() {
    const Matrix<T> weight = matrix();
    return {weight, kind_.biases ? vector() : Vector<Compute<T>>()};
  }

 private:
  Vector<Compute<T>> buffer_;
  Architecture kind_;
  const std::vector<ParameterEntry>& entries_;
  std::size_t next_ = 0;
  const MatrixCopies<T>* copies_ = nullptr;
  std::size_t layer_ = 0;
};

}  // namespace minipipe::core
