#pragma once

#include <string>

// What the user wrote, as messages show it. UTF-8 stays UTF-8.
namespace minipipe::core {

// The beginning of a text that is very long, and how long it is.
std::string shortened(const std::string& text);

// The letter that begins at byte `at`, whole.
std::string letter_at(const std::string& text, std::size_t at);

// Whether the bytes are UTF-8, as all of a TOML document has to be.
bool is_utf8(const std::string& text);

}  // namespace minipipe::core
