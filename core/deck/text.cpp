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

}  // namespace minipipe::core
