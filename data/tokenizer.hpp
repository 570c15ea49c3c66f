#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace minipipe::data {

// A SentencePiece model as a function from one line (without its newline) to ids.
struct LineTokenizer {
  std::int64_t vocab = 0;
  std::function<std::vector<std::int32_t>(const std::string& line)> encode;
};

// Throws InputError if the model cannot be loaded, or if this program was built without SentencePiece.
LineTokenizer load_sentencepiece(const std::string& model);

}  // namespace minipipe::data
