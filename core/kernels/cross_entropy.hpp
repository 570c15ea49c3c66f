#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// losses[r] = log(sum exp(logits[r, :])) - logits[r, targets[r]] in nats; logits [R, V], targets [R] in 0..V-1.
// A row with a negative target counts nothing: its loss and its gradient are 0.
template <class T>
void cross_entropy_loss(const ExecutionSpace& space, Vector<Compute<T>> losses, ConstMatrix<T> logits,
                        ConstVector<std::int32_t> targets);

// The same losses; the logits are overwritten by scale (softmax(logits) - one_hot(target)).
// For the mean loss of an update, scale is 1/(tokens of the update).
template <class T>
void cross_entropy_gradient(const ExecutionSpace& space, Vector<Compute<T>> losses, Matrix<T> logits,
                            ConstVector<std::int32_t> targets, Compute<T> scale);

}  // namespace minipipe::core
