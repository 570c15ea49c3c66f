#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/hdf5_handle.hpp"
#include "data/token_file.hpp"

namespace minipipe::data {

// A private read-only memory map of a whole file.
class FileMap {
 public:
  FileMap() = default;
  // Throws RunError if the file cannot be mapped. `size` > 0.
  FileMap(int descriptor, std::size_t size, const std::string& path);
  FileMap(FileMap&& other) noexcept;
  FileMap& operator=(FileMap&& other) noexcept;
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;
  ~FileMap();
  const std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// What is behind an open TokenFile: ids in memory (`ids`: mapped, or in `owned`), or an open dataset.
struct TokenFile::Contents {
  std::string key;
  std::string path;
  TokenFormat format = TokenFormat::flat_uint16;
  std::int64_t size = 0;  // tokens
  int width = 2;          // bytes per stored id: 1, 2 or 4
  std::int64_t vocab = 0;
  std::int64_t checked = 0;  // ids below this position are known to be below vocab
  std::optional<double> entropy;

  const std::byte* ids = nullptr;
  FileMap map;
  std::vector<std::byte> owned;
  Hdf5Handle file;  // files of 1 GiB or more stay open; declared before the dataset, hence closed after it
  Hdf5Handle dataset;

  // "data.train: 'x.bin'": how messages about this file begin.
  std::string where() const { return key + ": '" + path + "'"; }

  // Fills the fields from an HDF5 file; throws InputError if it is not a token file.
  void open_hdf5();
  // Copies ids without checking them.
  void copy(std::int64_t first, std::int64_t count, std::int32_t* out) const;
  // Throws InputError, with its position, if an id of those at `first` is not below vocab.
  void check(std::int64_t first, std::int64_t count, const std::int32_t* copied) const;
};

}  // namespace minipipe::data
