#pragma once

#include <string>
#include <vector>

#include "app/command.hpp"

namespace minipipe::app {

// A word of a command as a shell reads it: in single quotes if it has more than letters, digits and what no shell minds.
std::string shell_word(const std::string& word);

// The deck with its case and its overrides, as words of a command; `changes` (block.key=value) replace overrides of their keys,
// since no key may be given twice.
std::string deck_words(const Command& command, const std::vector<std::string>& changes = {});

}  // namespace minipipe::app
