#include "app/command_text.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace minipipe::app {

namespace {

std::string key_of(const std::string& override_text) {
  std::string key = override_text.substr(0, override_text.find('='));
  std::erase_if(key, [](unsigned char letter) { return std::isspace(letter) != 0; });
  return key;
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr std::string_view harmless = "_-.,:/=+@%";
  const auto safe = [&](unsigned char c) {
    return std::isalnum(c) != 0 || harmless.find(static_cast<char>(c)) < harmless.size();
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), safe)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string deck_words(const Command& command, const std::vector<std::string>& changes) {
  std::string text = shell_word(command.deck);
  if (command.case_number >= 0) text += " --case " + std::to_string(command.case_number);
  for (const std::string& given : command.overrides) {
    const auto same_key = [&](const std::string& change) { return key_of(change) == key_of(given); };
    if (std::none_of(changes.begin(), changes.end(), same_key)) (text += ' ') += shell_word(given);
  }
  for (const std::string& change : changes) (text += ' ') += shell_word(change);
  return text;
}

}  // namespace minipipe::app
