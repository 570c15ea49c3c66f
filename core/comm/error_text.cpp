#include "core/comm/error_text.hpp"

#include <new>
#include <string_view>

namespace minipipe::core {

namespace {

// What stands between the two; empty where they are not there.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t found = text.find(before);
  if (found == std::string_view::npos) return {};
  text.remove_prefix(found + before.size());
  const std::size_t end = text.find(after);
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

}  // namespace

std::string error_text(const std::exception& error) {
  const std::string_view text = error.what();
  const bool of_kokkos =
      text.starts_with("Kokkos failed to allocate") || text.starts_with("Kokkos encountered an allocation failure");
  if (!of_kokkos && dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return std::string(text);
  std::string result = "out of memory";
  const std::string_view size = between(text, "Allocation of size ", " failed");  // "3.006 G", of 1024 each
  const std::string_view label = between(text, "label \"", "\"");
  if (!size.empty() && !label.empty()) {
    const char* unit = size.back() == 'B' ? "" : "iB";
    result += ": " + std::string(size) + unit + " for " + std::string(label) + " cannot be had";
  }
  return result +
         "; use a smaller model, smaller or fewer microbatches, train.recompute = \"block\", or more ranks (stages, or "
         "replicas with parallel.mode = \"fsdp\"); minipipe check DECK --stages N prints what each rank needs";
}

}  // namespace minipipe::core
