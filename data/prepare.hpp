#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace minipipe::data {

struct PrepareOptions {
  std::vector<std::string> text;    // plain text files, taken one after the other
  std::string sentencepiece_model;  // empty: one token per byte, vocabulary 256
  std::string out;                  // folder, made if missing; gets train.h5 and validation.h5
  double validation = 0.01;         // the tail of the text that becomes validation.h5, as a fraction of its bytes
  bool force = false;               // replace files that are there
  bool synthetic = false;           // text from SyntheticLanguage instead of files
  std::int64_t tokens = 1 << 20;    // synthetic only: length of both files together
  std::int64_t vocab = 256;         // synthetic only
  std::uint64_t seed = 1;           // synthetic only
};

// Makes OUT/train.h5 and OUT/validation.h5 (the HDF5 form of token_file.hpp), both under temporary names first, so that a file
// is whole or absent. Says on `log` what it wrote.
// With a SentencePiece model, each line is encoded by itself and followed by the model's end-of-sentence id where it has one;
// a line belongs to the file in which it begins.
// Throws InputError for unusable options or text, or files that are there without `force`; RunError if OUT cannot be written.
void prepare(const PrepareOptions& options, std::ostream& log);

// The `synthetic` case of prepare(). The entropy rate is stored in both files as the attribute `entropy`.
void prepare_synthetic(const PrepareOptions& options, std::ostream& log);

}  // namespace minipipe::data
