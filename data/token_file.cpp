#include "data/token_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "data/content.hpp"
#include "data/file_descriptor.hpp"
#include "data/token_contents.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the flat forms are little-endian and are mapped as they are");

constexpr std::int64_t checked_bytes_at_open = std::int64_t{1} << 30;

// llm.c's data header: 256 int32, of which magic, version and token count are used (dev/data/data_common.py).
constexpr std::int64_t llmc_header_bytes = 256 * 4;
constexpr std::int32_t llmc_magic_gpt2 = 20240520;
constexpr std::int32_t llmc_magic_llama3 = 20240801;

void open_llmc(TokenFile::Contents& contents, const std::int32_t* header, std::int64_t bytes) {
  const bool gpt2 = header[0] == llmc_magic_gpt2;
  const std::int32_t version = gpt2 ? 1 : 7;
  contents.format = TokenFormat::llmc;
  contents.width = gpt2 ? 2 : 4;
  const std::string found = contents.where() + " has the magic number of an llm.c token file, but ";
  const std::string again = "; write it again with llm.c's dev/data scripts";
  if (bytes < llmc_header_bytes) {
    throw InputError(found + "is truncated: " + std::to_string(bytes) + " bytes, less than its header of 1024" + again);
  }
  if (header[1] != version) {
    throw InputError(found + "version " + std::to_string(header[1]) + ", not " + std::to_string(version) + again);
  }
  const std::int64_t count = header[2];
  const std::int64_t room = (bytes - llmc_header_bytes) / contents.width;
  if (count < 0 || count > room) {
    throw InputError(found + "is truncated: its header says " + std::to_string(count) + " tokens, the file has room for " +
                     std::to_string(room) + "; copy it again, or write it again with llm.c's dev/data scripts");
  }
  if (llmc_header_bytes + count * contents.width != bytes) {
    throw InputError(found + "has " + std::to_string(bytes) + " bytes, more than the " + std::to_string(count) +
                     " tokens its header says" + again);
  }
  contents.size = count;
  contents.ids = contents.map.data() + llmc_header_bytes;
}

void open_flat(TokenFile::Contents& contents, std::int64_t bytes) {
  if (bytes % 2 != 0) {
    throw InputError(contents.where() + " has an odd number of bytes (" + std::to_string(bytes) +
                     "), so it is no file of uint16 token ids (nanoGPT), or a truncated one; copy it again, or make one with "
                     "'minipipe prepare'");
  }
  contents.format = TokenFormat::flat_uint16;
  contents.width = 2;
  contents.size = bytes / 2;
  contents.ids = contents.map.data();
}

// Opens the file and decides by its first bytes what it is.
void open_by_content(TokenFile::Contents& contents) {
  const FileDescriptor descriptor(::open(contents.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor) {
    const int error = errno;
    throw InputError(
        contents.where() + (error == ENOENT ? " does not exist" : " cannot be opened: " + std::string(std::strerror(error))) +
        "; paths are relative to the working directory. jobs/prepare-sample.sh makes data/sample/{train,validation}.h5, "
        "'minipipe prepare' makes token files of your text");
  }
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw InputError(contents.where() + " is not a regular file; give the path of one token file");
  }
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  if (bytes == 0) throw InputError(contents.where() + " is empty (0 bytes); make it again with 'minipipe prepare'");

  contents.map = FileMap(descriptor.get(), static_cast<std::size_t>(bytes), contents.path);
  const auto* head = reinterpret_cast<const unsigned char*>(contents.map.data());
  const std::string kind = kind_of_content(head, static_cast<std::size_t>(std::min<std::int64_t>(bytes, 4096)));
  std::int32_t header[3] = {0, 0, 0};
  std::memcpy(header, head, static_cast<std::size_t>(std::min<std::int64_t>(bytes, sizeof header)));

  if (kind == "an HDF5 file") {
    contents.map = FileMap();
    contents.open_hdf5();
  } else if (header[0] == llmc_magic_gpt2 || header[0] == llmc_magic_llama3) {
    open_llmc(contents, header, bytes);
  } else if (!kind.empty()) {
    throw InputError(contents.where() + " looks like " + kind + ", not like a token file; " +
                     remedy_for_kind(kind, contents.path));
  } else {
    open_flat(contents, bytes);
  }
}

// Checks the ids of the first GiB in one pass.
void check_ids(TokenFile::Contents& contents) {
  const std::int64_t last = std::min(contents.size, checked_bytes_at_open / contents.width);
  const bool cannot_exceed = contents.width < 4 && (std::int64_t{1} << (8 * contents.width)) <= contents.vocab;
  if (cannot_exceed) {
    contents.checked = contents.size;
    return;
  }
  std::vector<std::int32_t> block(1 << 16);
  for (std::int64_t first = 0; first < last; first += std::ssize(block)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(block), last - first);
    contents.copy(first, count, block.data());
    contents.check(first, count, block.data());
  }
  contents.checked = last;
}

}  // namespace

std::string to_string(TokenFormat format) {
  switch (format) {
    case TokenFormat::hdf5:
      return "HDF5";
    case TokenFormat::llmc:
      return "llm.c";
    case TokenFormat::flat_uint16:
      return "flat uint16";
  }
  return "unknown";
}

TokenFile::TokenFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;
TokenFile::~TokenFile() = default;

const std::string& TokenFile::path() const { return contents_->path; }
TokenFormat TokenFile::format() const { return contents_->format; }
std::int64_t TokenFile::size() const { return contents_->size; }
std::int64_t TokenFile::vocab() const { return contents_->vocab; }
std::optional<double> TokenFile::entropy() const { return contents_->entropy; }

void TokenFile::read(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  if (first < 0 || count < 0 || first > contents_->size - count) {
    throw std::out_of_range(contents_->where() + ": tokens [" + std::to_string(first) + ", " + std::to_string(first) + " + " +
                            std::to_string(count) + ") of " + std::to_string(contents_->size));
  }
  contents_->copy(first, count, out);
  if (first + count > contents_->checked) contents_->check(first, count, out);
}

TokenFile open_token_file(const std::string& path, std::int64_t vocab, std::int64_t sequence, const std::string& key) {
  auto contents = std::make_unique<TokenFile::Contents>();
  contents->key = key;
  contents->path = path;
  contents->vocab = vocab;
  open_by_content(*contents);
  if (contents->size < sequence + 1) {
    throw InputError(contents->where() + " holds " + std::to_string(contents->size) +
                     " tokens, too few for one sequence: " + "train.sequence = " + std::to_string(sequence) + " needs " +
                     std::to_string(sequence + 1) + "; lower train.sequence or give a longer file");
  }
  check_ids(*contents);
  return TokenFile(std::move(contents));
}

}  // namespace minipipe::data
