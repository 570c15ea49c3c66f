#include "core/io/batch_dump.hpp"

#include "core/io/hdf5.hpp"
#include "core/io/output_option.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

BatchDump::BatchDump(const std::filesystem::path& file, std::int64_t batch, std::int64_t sequence)
    : path_(file), batch_(batch), sequence_(sequence), temporary_(std::make_unique<TemporaryFile>(file)) {
  check_output("--dump-batch", file);
  try {
    hdf5::File::create(temporary_->path()).close();
  } catch (const RunError& error) {
    throw InputError("--dump-batch " + file.string() +
                     ": cannot write there; give a file name in an existing, writable folder (" + error.what() + ")");
  }
}

void BatchDump::write(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                      std::span<const float> loss) {
  const auto count = static_cast<std::size_t>(batch_ * sequence_);
  if (tokens.size() != count || targets.size() != count || loss.size() != count) {
    throw RunError(path_.string() + ": a batch of " + std::to_string(batch_) + " x " + std::to_string(sequence_) +
                   " was announced, other sizes were given");
  }
  const std::vector<hsize_t> shape{static_cast<hsize_t>(batch_), static_cast<hsize_t>(sequence_)};
  naming_option("--dump-batch", path_, [&] {
    reserve(temporary_->path(), 65536 + count * (2 * sizeof(std::int32_t) + sizeof(float)));
    hdf5::File file = hdf5::File::create(temporary_->path());
    file.write("/tokens", shape, tokens.data());
    file.write("/targets", shape, targets.data());
    file.write("/loss", shape, loss.data());
    file.close();
    temporary_->publish();
  });
}

}  // namespace minipipe::core
