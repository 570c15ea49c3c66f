#pragma once

#include <string>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Reads a deck (TOML, one level of blocks) and then the overrides `block.key=value`, whose value is TOML or, for keys of
// string type, a bare word. A block [sweep] is checked and left out (core/deck/sweep.hpp). `file_name` is used in messages and
// origins only. Throws one InputError with a line per error, all of them: syntax, unknown block or key, repeated key, wrong
// type, value out of range. Each line reads "file:line: block.key = value: what is wrong; what is allowed". Rules between keys:
// check_rules.
Deck read_deck(const std::string& text, const std::string& file_name, const std::vector<std::string>& overrides = {});

}  // namespace minipipe::core
