#pragma once

#include <string>

namespace minipipe::core {

// All keys with type, default, allowed values and meaning: plain text, for --help-deck.
std::string help_deck();

// The same as Markdown, a table per block.
std::string help_markdown();

}  // namespace minipipe::core
