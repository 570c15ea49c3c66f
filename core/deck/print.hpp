#pragma once

#include <cstdint>
#include <string>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// The resolved deck as TOML, every key: read_deck gives an equal deck back. With `origins`, a value that is not from the
// default carries a comment that says where it is from.
std::string print_deck(const Deck& deck, bool origins = true);

// 64-bit FNV-1a hash of the resolved deck without origins: equal settings, equal hash, on every rank and machine.
std::uint64_t deck_hash(const Deck& deck);

}  // namespace minipipe::core
