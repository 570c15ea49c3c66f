#pragma once

#include "core/types/types.hpp"

// The gate of a mixture of experts: k of E experts for each row (token), R rows.
namespace minipipe::core {

enum class RouterWeights {
  // Softmax over the chosen logits alone, as in Mixtral (Jiang et al., arXiv 2401.04088): the chosen probabilities divided by
  // their sum. With one choice all weights are one, and only the balance loss moves the logits.
  normalised,
  // The probabilities themselves, as in the Switch Transformer (Fedus et al., arXiv 2101.03961, equation 2).
  probabilities,
};

// probabilities [R, E] = softmax of the logits over all experts. experts [R, k]: those of the k largest logits, largest first,
// the lower index first among equal ones (a logit that is not a number counts as the smallest); 1 <= k <= E. weights [R, k].
template <class T>
void router_forward(const ExecutionSpace& space, Matrix<std::int32_t> experts, Matrix<T> weights, Matrix<T> probabilities,
                    ConstMatrix<T> logits, RouterWeights kind = RouterWeights::normalised);

// Load-balancing loss of the Switch Transformer (Fedus et al., arXiv 2101.03961, equations 4 to 6) for k choices per row:
//   loss(0) = E sum_e f_e P_e,  f_e = counts_e / (R k): share of the choices,  P_e: mean probability over the rows.
// 1 if all is even, E at worst. Not multiplied by its coefficient. counts [E] are those before any expert is cut to a capacity.
// Writes load [E] = f, which the backward takes, and mean [E] = P.
template <class T>
void router_balance(const ExecutionSpace& space, Vector<double> loss, Vector<T> load, Vector<T> mean,
                    ConstVector<std::int32_t> counts, ConstMatrix<T> probabilities);

// Writes the gradient to the logits: from the gradient of the weights [R, k], plus that of coefficient * loss with f held
// constant (counts have no gradient). `load` may be empty if the coefficient is zero. T is the type in which the result is
// stored, bf16 too; all else is Compute<T>.
template <class T>
void router_backward(const ExecutionSpace& space, Matrix<T> logits_gradient, ConstMatrix<Compute<T>> weights_gradient,
                     ConstMatrix<std::int32_t> experts, ConstMatrix<Compute<T>> weights, ConstMatrix<Compute<T>> probabilities,
                     ConstVector<Compute<T>> load, Compute<T> coefficient, RouterWeights kind = RouterWeights::normalised);

}  // namespace minipipe::core
