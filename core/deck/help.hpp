#pragma once

#include <string>

namespace minipipe::core {

// All keys with type, default, allowed values and meaning, for --help-deck: a deck of the defaults, with comments. An example
// of [sweep] at its end is commented out.
std::string help_deck();

// The same as Markdown, a table per block.
std::string help_markdown();

}  // namespace minipipe::core
