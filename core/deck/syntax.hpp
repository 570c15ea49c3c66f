#pragma once

#include <toml++/toml.h>

#include <string>

#include "core/deck/errors.hpp"

namespace minipipe::core {

// Parses TOML and goes on after an error, so that all of them can be reported: a line in error is taken out and the rest is
// parsed again. Repeated blocks and keys stay in the table under an alias each, so that the reader can check the block's keys
// and report the key with its value. Errors are added with their line; after an error that leaves the rest in doubt (a list
// that is not closed) the table is empty.
toml::table parse_toml(const std::string& text, Errors& errors);

// The name in the deck, of a name in the table that parse_toml returned.
std::string original_name(const std::string& name);

}  // namespace minipipe::core
