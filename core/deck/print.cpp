#include "core/deck/print.hpp"

#include "core/deck/schema.hpp"

namespace minipipe::core {

std::string print_deck(const Deck& deck, bool origins) {
  std::string text;
  std::string block;
  for (const Entry& entry : schema()) {
    if (entry.block != block) {
      block = entry.block;
      text += (text.empty() ? "[" : "\n[") + block + "]\n";
    }
    text += entry.key + " = " + to_toml(entry.get(deck));
    if (origins) {
      const auto origin = deck.origins.find(entry.name());
      if (origin != deck.origins.end()) text += "  # " + origin->second;
    }
    text += '\n';
  }
  return text;
}

std::uint64_t deck_hash(const Deck& deck) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // offset basis and prime of FNV-1a, 64 bit
  for (const char c : print_deck(deck, false)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

}  // namespace minipipe::core
