#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/io/checkpoint.hpp"
#include "core/io/hdf5.hpp"

// How a checkpoint is laid out, shared by its writer and its readers.
namespace minipipe::core::checkpoint {

inline constexpr const char* checksum_key = "checksum";

inline std::string model_name(const std::string& tensor) { return std::string("/model/").append(tensor); }
// "/model/NAME", "/optimizer/NAME/m" and so on.
std::string dataset_name(const std::string& tensor, TensorField field);

// Tensors as matrices: a one-dimensional one is a row.
inline hsize_t rows_of(const std::vector<hsize_t>& shape) { return shape.size() == 2 ? shape[0] : 1; }
inline hsize_t columns_of(const std::vector<hsize_t>& shape) { return shape.back(); }

std::string shape_text(const std::vector<hsize_t>& shape);

// RunError unless the name can be a dataset's, the tensor has one or two extents and the rectangle lies in it.
void require_valid(const TensorPart& part);

// Selects the rectangle in a dataset's space (one or two extents); negative if HDF5 refuses.
herr_t select(hid_t space, const std::vector<hsize_t>& shape, const Rectangle& rectangle);

// Of the state: FNV-1a's scheme over 64-bit little-endian words (the last one filled with zeros), and the length; the high half
// is folded back after each word. Each step is a bijection of the running value, so a change of any one word is always seen.
std::uint64_t checksum(const void* data, std::size_t bytes);

// The share of a dataset's checksum that a part of it has; the checksum is the sum of all shares modulo 2^64, so that ranks
// compute it together and in any order. Each element gives (its number in the tensor, its bits), hashed: x = bits + number *
// 2^64/phi, then the finalizer of SplitMix64 (Steele et al. 2014; constants: Stafford's variant 13). It is a bijection of x, so
// that a change of any one element is always seen; exchanged or displaced elements collide with probability 2^-64.
// `columns`: of the tensor.
std::uint64_t checksum_share(const float* values, const Rectangle& rectangle, hsize_t columns);

// The state as attributes of /state, with its checksum and the number of datasets; format name and version at the root.
void set_state(const hdf5::File& file, const CheckpointState& state, std::size_t datasets);

// Reads and verifies them. InputError as in checkpoint.hpp. `datasets` (may be null): the number written.
CheckpointState get_state(const hdf5::File& file, std::size_t* datasets);

}  // namespace minipipe::core::checkpoint
