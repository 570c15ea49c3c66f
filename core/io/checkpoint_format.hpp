#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/checkpoint.hpp"
#include "core/io/hdf5.hpp"

// How a checkpoint is laid out, shared by its writer and its readers.
namespace minipipe::core::checkpoint {

inline constexpr const char* checksum_key = "checksum";

inline std::string model_name(const std::string& tensor) { return std::string("/model/").append(tensor); }
inline std::string moment_name(const std::string& tensor, std::string_view moment) {
  return std::string("/optimizer/").append(tensor).append("/").append(moment);
}

// FNV-1a's scheme over 64-bit little-endian words (the last one filled with zeros), and the length; the high half is folded
// back after each word. Each step is a bijection of the running value, so a change of any one word is always seen.
std::uint64_t checksum(const void* data, std::size_t bytes);

// The state as attributes of /state, with its checksum and the number of datasets; format name and version at the root.
void set_state(const hdf5::File& file, const CheckpointState& state, std::size_t datasets);

// Reads and verifies them. InputError as in checkpoint.hpp. `datasets` (may be null): the number written.
CheckpointState get_state(const hdf5::File& file, std::size_t* datasets);

}  // namespace minipipe::core::checkpoint
