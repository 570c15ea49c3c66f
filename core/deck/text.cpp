#include "core/deck/text.hpp"

namespace minipipe::core {

namespace {
bool continues_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }
}  // namespace

std::string shortened(const std::string& text) {
  constexpr std::size_t most = 200;
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && continues_letter(text[end])) --end;
  return text.substr(0, end) + "... (" + std::to_string(text.size()) + " bytes)";
}

std::string letter_at(const std::string& text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && continues_letter(text[end])) ++end;
  return text.substr(at, end - at);
}

bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned first = byte(i);
    const std::size_t length = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : 4;
    if (length == 4 && (first < 0xf0 || first > 0xf4)) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    // Longer than needed, halves of UTF-16 pairs, beyond the last code point.
    const unsigned second = byte(i + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

}  // namespace minipipe::core
