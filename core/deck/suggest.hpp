#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minipipe::core {

// Number of insertions, deletions, replacements and swaps of neighbours that turn one word into the other
// (optimal string alignment distance).
int edit_distance(std::string_view a, std::string_view b);

// The known word nearest to `word`, if it is near enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace minipipe::core
