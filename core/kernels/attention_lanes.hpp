#pragma once

#include <cstdint>
#include <type_traits>

#include "core/kernels/attention_tiles.hpp"
#include "core/kernels/lane_tiles.hpp"

// Attention on the host in float: the same method as in the portable kernels, with sums in vector registers (lanes.hpp).
namespace minipipe::core {

// What these kernels can do; the portable ones do the rest.
template <class T>
constexpr bool lanes_for = on_host&& std::is_same_v<Compute<T>, float>;
inline bool fits_lanes(const AttentionSizes& z) { return z.depth <= largest_lane_stride; }

// The first address in memory that starts a cache line: what is there then crosses none when vectors are read.
inline constexpr std::size_t line_floats = 16;
inline float* line_start(void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory), bytes = line_floats * sizeof(float);
  return reinterpret_cast<float*>((address + bytes - 1) / bytes * bytes);
}
inline float* lane_scratch(const TeamMember& team, std::size_t elements) {
  return line_start(team.team_shmem().get_shmem((elements + line_floats) * sizeof(float)));
}

// Rows `row` and further, columns `column` and further of `part`.
template <class T>
T* columns_at(const Columns<T>& part, std::int64_t row, std::int64_t column) {
  return part.data + row * part.stride + column;
}

// Arguments as those of the public functions, checked.
template <class T>
void attention_forward_lanes(const ExecutionSpace& space, const Matrix<T>& out, const Vector<float>& logsumexp,
                             const Qkv<const T>& qkv, const AttentionShape& shape, const Dropout& dropout);

template <class T>
void attention_backward_lanes(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, const ConstMatrix<T>& output_gradient,
                              const Qkv<const T>& qkv, const ConstMatrix<T>& out, const ConstVector<float>& logsumexp,
                              const AttentionShape& shape, const Dropout& dropout);

}  // namespace minipipe::core
