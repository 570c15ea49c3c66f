#include "core/deck/help.hpp"

#include <string_view>

#include "core/deck/schema.hpp"

namespace minipipe::core {
namespace {

// The type in one word or two, without the article of type_name.
std::string short_type(Type type) {
  switch (type) {
    case Type::boolean:
      return "bool";
    case Type::integer:
      return "int";
    case Type::real:
      return "float";
    case Type::text:
      return "string";
    case Type::integers:
      return "list of int";
    case Type::reals:
      return "list of float";
  }
  return "";
}

// A bar would end the cell.
std::string markdown_cell(const std::string& text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

}  // namespace

std::string help_deck() {
  const Deck defaults;
  std::string text =
      "# Keys of a deck (TOML), with their defaults. On the command line: block.key=value.\n"
      "# A star marks keys that may change when a run resumes from a checkpoint.\n";
  for (const BlockDoc& block : schema_blocks()) {
    text += "\n[" + block.name + "]  # " + block.doc + "\n";
    for (const Entry& entry : schema()) {
      if (entry.block != block.name) continue;
      text += entry.key + " = " + to_toml(entry.get(defaults)) + (entry.may_change_at_restart ? "  # *" : "") + "\n";
      text += "#     " + entry.doc + "\n";
      text += "#     " + short_type(entry.type);
      if (const std::string limits = entry.limits.text(); !limits.empty()) text += ", " + limits;
      text += '\n';
    }
  }
  text +=
      "\n# Many runs from one deck: minipipe train DECK --cases [--list], --case K; all of them: jobs/sweep.sh DECK. All\n"
      "# combinations, numbered from 0; the first key of the file changes slowest. zip: keys that move together; their lists "
      "are\n"
      "# equally long.\n"
      "# [sweep]\n"
      "# \"run.seed\" = [1, 2, 3]\n"
      "# \"train.learning_rate\" = [0.001, 0.002]\n"
      "# \"train.warmup_steps\" = [10, 20]\n"
      "# zip = [[\"train.learning_rate\", \"train.warmup_steps\"]]\n";
  return text;
}

std::string help_markdown() {
  const Deck defaults;
  std::string text;
  for (const BlockDoc& block : schema_blocks()) {
    if (!text.empty()) text += '\n';
    text.append("### `[").append(block.name).append("]`: ").append(block.doc).append("\n\n");
    text += "| key | type | default | allowed | at a restart | meaning |\n|---|---|---|---|---|---|\n";
    for (const Entry& entry : schema()) {
      if (entry.block != block.name) continue;
      text += "| `" + entry.key + "` | " + short_type(entry.type) + " | `" + to_toml(entry.get(defaults)) + "` | " +
              markdown_cell(entry.limits.text()) + " | " + (entry.may_change_at_restart ? "may change" : "fixed") + " | " +
              markdown_cell(entry.doc) + " |\n";
    }
  }
  return text;
}

}  // namespace minipipe::core
