#pragma once

#include <cstdint>
#include <span>

#include "core/optim/optimizer.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// A parameter matrix [rows, columns] inside the flat arrays. Matrices stacked in one tensor are given one by one: each is a map
// of its own, and its singular values are its own.
struct MuonMatrix {
  std::int64_t offset = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool decay = false;
  std::int64_t trained = -1;  // where its gradients and first moments start; negative: at `offset`, too
};

// Memory that muon_update and orthogonalise use up, for matrices up to the size they were made for.
template <class T>
struct MuonWorkspace {
  Vector<T> matrix, product;   // elements of the largest matrix each, padded
  Vector<T> gram, polynomial;  // squares of the largest smaller side, padded
  Vector<double> norm;         // [1]
  Vector<double> sum;          // sum_workspace(elements of the largest matrix)
};

// Owns such memory; allocates it once. Nothing for no matrices.
template <class T>
class MuonMemory {
 public:
  explicit MuonMemory(std::span<const MuonMatrix> matrices);
  MuonWorkspace<T> workspace() const;
  std::size_t bytes() const { return values_.size() * sizeof(T) + sums_.size() * sizeof(double); }

 private:
  std::size_t matrix_, square_;
  OwnedVector<T> values_;
  OwnedVector<double> sums_;
};

// Bytes that MuonMemory<T> of these matrices allocates.
template <class T>
std::size_t muon_memory_bytes(std::span<const MuonMatrix> matrices);

// The nearest orthogonal matrix to x [rows, columns] in workspace.matrix, roughly: `steps` Newton-Schulz iterations
//   x <- a x + b (x x^T) x + c (x x^T)^2 x,   (a, b, c) = (3.4445, -4.7750, 2.0315),
// from x / ||x||, on the smaller side. The coefficients are chosen for speed, not for convergence: singular values end in about
// 0.7..1.2, except those that start below some 1e-3 of the norm. Returns where the result lies: workspace.matrix or .product.
template <class T>
Matrix<T> orthogonalise(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns, int steps,
                        const MuonWorkspace<T>& workspace);

// One Muon step of each matrix:
//   m = momentum m + (1 - momentum) g,   u = momentum m + (1 - momentum) g with Nesterov, else m,   g = gradient_scale
//   gradients, p -= learning_rate (sqrt(max(1, rows / columns)) orthogonalise(u) + weight_decay p);
// the factor is that of the authors' code. No second moment. `learning_rate` is that of this step. The gradients are left as
// they are.
template <class T>
void muon_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, ConstVector<T> gradients,
                 std::span<const MuonMatrix> matrices, const MuonOptions& options, double weight_decay, double learning_rate,
                 double gradient_scale, const MuonWorkspace<T>& workspace);

}  // namespace minipipe::core
