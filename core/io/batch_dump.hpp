#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "core/io/durable.hpp"

namespace minipipe::core {

// One batch and its losses in HDF5, for comparison with other programs: /tokens and /targets (int32 [batch, sequence]), /loss
// (float [batch, sequence], nats of each target).
class BatchDump {
 public:
  // Makes the temporary file now, so that a wrong path is told before the work: InputError.
  BatchDump(const std::filesystem::path& file, std::int64_t batch, std::int64_t sequence);

  // Row-major, batch * sequence values each. The file appears under its name. Once. RunError.
  void write(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets, std::span<const float> loss);

 private:
  std::filesystem::path path_;
  std::int64_t batch_;
  std::int64_t sequence_;
  std::unique_ptr<TemporaryFile> temporary_;
};

}  // namespace minipipe::core
