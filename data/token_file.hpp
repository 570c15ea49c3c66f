#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace minipipe::data {

enum class TokenFormat {
  hdf5,        // dataset /tokens, as `minipipe prepare` writes it
  llmc,        // llm.c: 256 int32 of header, then uint16 (GPT-2) or uint32 (LLaMA 3) ids
  flat_uint16  // nanoGPT: nothing but little-endian uint16 ids
};

std::string to_string(TokenFormat format);

// A read-only sequence of token ids. Which form a file has is decided by its content, never by its name.
//
// HDF5 form: 1-D dataset /tokens of uint8, uint16 or uint32; root attributes `format` = "minipipe tokens", `version` = 1,
// `vocab`, `tokenizer`, and for synthetic text `entropy` (nats per token). The attributes may be missing (files made with
// h5py); if they are there they are checked.
//
// Flat forms are memory-mapped, so ranks of a node share one copy. HDF5 datasets below 1 GiB are read whole when opened; larger
// ones are read piece by piece. Ids are checked when opened as far as the first GiB goes, further ids when they are read.
class TokenFile {
 public:
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;
  ~TokenFile();

  const std::string& path() const;
  TokenFormat format() const;

  // Number of tokens.
  std::int64_t size() const;

  // All ids are below this: the vocabulary given at opening.
  std::int64_t vocab() const;

  // Nats per token of the source that made the text, where it is known (synthetic text): no model's mean loss can stay below.
  std::optional<double> entropy() const;

  // Copies the ids at [first, first + count) to `out` (host memory). The range must lie within [0, size()).
  // Safe to call from several threads, except for HDF5 files of 1 GiB or more.
  void read(std::int64_t first, std::int64_t count, std::int32_t* out) const;

  struct Contents;  // what is behind it (token_contents.hpp)

 private:
  explicit TokenFile(std::unique_ptr<Contents> contents);
  friend TokenFile open_token_file(const std::string&, std::int64_t, std::int64_t, const std::string&);

  std::unique_ptr<Contents> contents_;
};

// Opens a token file of any form for a model with `vocab` ids and windows of `sequence` inputs.
// `key` names the place the path came from in messages ("data.train").
// Throws InputError, with key, path, what was found and the remedy, if the file is missing, empty, truncated, of a foreign
// kind, shorter than sequence + 1 tokens, or holds an id that is not below `vocab`.
TokenFile open_token_file(const std::string& path, std::int64_t vocab, std::int64_t sequence, const std::string& key);

}  // namespace minipipe::data
