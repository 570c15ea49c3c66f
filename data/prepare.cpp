#include "data/prepare.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "data/content.hpp"
#include "data/file_descriptor.hpp"
#include "data/synthetic.hpp"
#include "data/token_writer.hpp"
#include "data/tokenizer.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t block_bytes = 1 << 20;

std::string train_path(const PrepareOptions& options) { return (fs::path(options.out) / "train.h5").string(); }
std::string validation_path(const PrepareOptions& options) { return (fs::path(options.out) / "validation.h5").string(); }

void check_options(const PrepareOptions& options) {
  if (options.out.empty()) throw InputError("--out is missing: name the folder that gets train.h5 and validation.h5");
  if (!(options.validation > 0 && options.validation < 1)) {
    throw InputError("--validation = " + std::to_string(options.validation) +
                     " is not between 0 and 1: it is the fraction of the text that becomes validation.h5, such as 0.02");
  }
  if (options.synthetic == !options.text.empty()) {
    throw InputError(options.synthetic ? "--synthetic and --text exclude each other: leave one out"
                                       : "nothing to prepare: give --text FILE, or --synthetic");
  }
  if (options.force) return;
  for (const std::string& path : {train_path(options), validation_path(options)}) {
    if (fs::exists(path))
      throw InputError("--out: '" + path + "' is there already; give --force to replace it, or another folder");
  }
}

// Makes the folder and takes it: a second command that writes its temporary files at the same time would destroy them. The lock
// is that of the open folder, so that it leaves no file and ends with the process. Where the file system has none, all go on.
FileDescriptor take_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw InputError("--out: cannot make the folder '" + folder + "': " + error.message() +
                     "; name a folder that can be written to");
  }
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened && ::flock(opened.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw InputError("--out: another minipipe prepare is writing into '" + folder +
                     "'; wait until it has ended, or give another folder");
  }
  return opened;
}

std::ifstream open_text(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw InputError("--text: '" + path + "' is a folder; give the text files in it");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw InputError("--text: '" + path + "' cannot be opened: " + std::strerror(errno) + "; give a text file");
  return stream;
}

// Total bytes of the texts; each is looked at before anything is written.
std::int64_t check_texts(const std::vector<std::string>& paths) {
  std::int64_t bytes = 0;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (fs::is_other(fs::status(path, ignored))) {
      throw InputError("--text: '" + path + "' is a pipe or a device; write it to a file first, which is read twice");
    }
    std::ifstream stream = open_text(path);
    char head[4096];
    stream.read(head, sizeof head);
    const auto got = static_cast<std::size_t>(stream.gcount());
    if (got == 0) throw InputError("--text: '" + path + "' is empty; leave it out or give another file");
    const std::string kind = kind_of_content(reinterpret_cast<const unsigned char*>(head), got);
    // Unknown bytes pass: text in an old encoding is fine as byte tokens.
    if (!kind.empty() && kind != "text") {
      throw InputError(
          "--text: '" + path + "' looks like " + kind + ", not like text; " +
          (kind == "a gzip file" ? "decompress it first: 'gzip -dc " + path + " > FILE'" : "give a plain text file"));
    }
    bytes += static_cast<std::int64_t>(fs::file_size(path));
  }
  return bytes;
}

void read_failed(const std::string& path) { throw RunError("--text: reading '" + path + "' failed: " + std::strerror(errno)); }

// One token per byte, cut at byte `split` of all the text.
void write_bytes(const PrepareOptions& options, std::int64_t split, TokenWriter& train, TokenWriter& validation) {
  std::vector<std::uint8_t> block(block_bytes);
  std::int64_t position = 0;
  for (const std::string& path : options.text) {
    std::ifstream stream = open_text(path);
    while (stream) {
      stream.read(reinterpret_cast<char*>(block.data()), static_cast<std::streamsize>(block.size()));
      const auto got = static_cast<std::int64_t>(stream.gcount());
      const std::int64_t before = std::clamp<std::int64_t>(split - position, 0, got);
      train.append(std::span<const std::uint8_t>(block.data(), before));
      validation.append(std::span<const std::uint8_t>(block.data() + before, got - before));
      position += got;
    }
    if (stream.bad()) read_failed(path);
  }
}

// Ids of whole lines; a line that begins at byte `split` or later goes to validation.
void write_lines(const PrepareOptions& options, const LineTokenizer& tokenizer, std::int64_t split, TokenWriter& train,
                 TokenWriter& validation) {
  std::vector<std::int32_t> pending;
  TokenWriter* target = &train;
  const auto flush = [&] {
    target->append(std::span<const std::int32_t>(pending));
    pending.clear();
  };
  std::int64_t position = 0;
  std::string line;
  for (const std::string& path : options.text) {
    std::ifstream stream = open_text(path);
    while (std::getline(stream, line)) {
      if (target == &train && position >= split) {
        flush();
        target = &validation;
      }
      position += static_cast<std::int64_t>(line.size()) + 1;
      const std::vector<std::int32_t> ids = tokenizer.encode(line);
      pending.insert(pending.end(), ids.begin(), ids.end());
      if (pending.size() >= block_bytes) flush();
    }
    if (stream.bad()) read_failed(path);
  }
  flush();
}

// Refuses parts that hold no window at all; then closes both files before either gets its name.
void publish(TokenWriter& train, TokenWriter& validation, std::ostream& log) {
  for (const TokenWriter* writer : {&train, &validation}) {
    if (writer->size() < 2) {
      throw InputError("the text is too short: '" + writer->path() + "' would hold " + std::to_string(writer->size()) +
                       " tokens; give more text or another --validation");
    }
  }
  train.close();
  validation.close();
  train.publish();
  validation.publish();
  for (const TokenWriter* writer : {&train, &validation}) log << writer->path() << ": " << writer->size() << " tokens\n";
}

}  // namespace

void prepare(const PrepareOptions& options, std::ostream& log) {
  if (options.synthetic) {
    prepare_synthetic(options, log);
    return;
  }
  check_options(options);
  const std::int64_t bytes = check_texts(options.text);
  const auto split = bytes - static_cast<std::int64_t>(std::llround(static_cast<double>(bytes) * options.validation));
  const bool pieces = !options.sentencepiece_model.empty();
  LineTokenizer tokenizer;
  if (pieces) tokenizer = load_sentencepiece(options.sentencepiece_model);
  const std::int64_t vocab = pieces ? tokenizer.vocab : 256;
  const std::string name = pieces ? "sentencepiece:" + fs::path(options.sentencepiece_model).filename().string() : "bytes";

  const FileDescriptor lock = take_folder(options.out);
  TokenWriter train(train_path(options), vocab, name);
  TokenWriter validation(validation_path(options), vocab, name);
  if (pieces) {
    write_lines(options, tokenizer, split, train, validation);
  } else {
    write_bytes(options, split, train, validation);
  }
  publish(train, validation, log);
  log << "tokenizer " << name << ", model.vocab = " << vocab << ", from " << bytes << " bytes of text\n";
}

void prepare_synthetic(const PrepareOptions& options, std::ostream& log) {
  PrepareOptions checked = options;
  checked.synthetic = true;
  check_options(checked);
  if (options.tokens < 4) throw InputError("--tokens = " + std::to_string(options.tokens) + " is too few: give at least 4");
  if (options.vocab < 2 || options.vocab > 65536) {
    throw InputError("--vocab = " + std::to_string(options.vocab) + " is not in 2 .. 65536; give a number of them");
  }
  const SyntheticLanguage language(options.vocab, options.seed);
  std::vector<std::uint16_t> text;
  try {
    text = language.generate(options.tokens, options.seed);
  } catch (const std::exception&) {
    throw RunError("--tokens = " + std::to_string(options.tokens) + ": out of memory, as all of them are kept; give fewer");
  }
  const auto split =
      options.tokens - static_cast<std::int64_t>(std::llround(static_cast<double>(options.tokens) * options.validation));

  const FileDescriptor lock = take_folder(options.out);
  TokenWriter train(train_path(options), options.vocab, "synthetic");
  TokenWriter validation(validation_path(options), options.vocab, "synthetic");
  train.set_entropy(language.entropy());
  validation.set_entropy(language.entropy());
  train.append(std::span(text).first(split));
  validation.append(std::span(text).subspan(split));
  publish(train, validation, log);
  log << "synthetic language, model.vocab = " << options.vocab << ", entropy " << language.entropy()
      << " nats per token (of single tokens " << language.unigram_entropy() << ")\n";
}

}  // namespace minipipe::data
