#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/file_descriptor.hpp"
#include "data/hdf5_handle.hpp"

namespace minipipe::data {

// Writes one token file (HDF5 form) under the temporary name PATH.tmp and renames it when told that it is complete. Without
// publish(), the destructor removes the temporary file: PATH is whole or as it was.
// Every member but the destructor throws RunError, with path and cause, if the file cannot be written.
class TokenWriter {
 public:
  // Ids are stored as uint8, uint16 or uint32: the smallest that holds vocab - 1.
  TokenWriter(const std::string& path, std::int64_t vocab, const std::string& tokenizer);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  ~TokenWriter();

  void append(std::span<const std::uint8_t> ids);
  void append(std::span<const std::uint16_t> ids);
  void append(std::span<const std::int32_t> ids);

  // Nats per token of the source, where it is known.
  void set_entropy(double entropy);

  std::int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  // Flushes and closes the temporary file and checks that HDF5 can open it; then publish() renames it. Two steps, so that of
  // several files none is renamed before all are complete.
  void close();
  void publish();

 private:
  void append_as(hid_t native, const void* ids, std::size_t count);
  // Reserves room on the disk for `tokens` tokens in all. HDF5 does not survive a failed write (the dataset can no longer be
  // closed, and the program crashes when it ends), so a full disk must show before HDF5 writes.
  void reserve(std::int64_t tokens);

  std::string path_;
  std::string temporary_;
  std::int64_t size_ = 0;
  std::int64_t width_ = 1;     // bytes per stored id
  std::int64_t reserved_ = 0;  // bytes
  bool published_ = false;
  FileDescriptor descriptor_;  // the temporary file, beside HDF5's own
  Hdf5Handle file_;
  Hdf5Handle dataset_;
};

}  // namespace minipipe::data
