#pragma once

#include <cstddef>
#include <string>

namespace minipipe::data {

// What the first bytes of a file say about its kind: "a gzip file", "an HDF5 file", "text", ... or "" if they say nothing.
// `size` bytes at `head`; a few kilobytes are enough.
std::string kind_of_content(const unsigned char* head, std::size_t size);

// What to do about a file of a kind that kind_of_content names, to get tokens: a clause for an error message.
std::string remedy_for_kind(const std::string& kind, const std::string& path);

}  // namespace minipipe::data
