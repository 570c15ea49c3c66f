#include "data/token_contents.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

template <class Id>
void widen(const std::byte* ids, std::int64_t first, std::int64_t count, std::int32_t* out) {
  // llm.c's header and HDF5's buffers keep ids aligned to their size; memcpy states no more than bytes.
  const std::byte* source = ids + first * static_cast<std::int64_t>(sizeof(Id));
  for (std::int64_t i = 0; i < count; ++i) {
    Id id;
    std::memcpy(&id, source + i * static_cast<std::int64_t>(sizeof(Id)), sizeof(Id));
    out[i] = static_cast<std::int32_t>(id);
  }
}

}  // namespace

FileMap::FileMap(int descriptor, std::size_t size, const std::string& path) : size_(size) {
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (start == MAP_FAILED) throw RunError("cannot map '" + path + "' into memory: " + std::strerror(errno));
  data_ = static_cast<std::byte*>(start);
}

FileMap::FileMap(FileMap&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileMap& FileMap::operator=(FileMap&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void TokenFile::Contents::copy(std::int64_t first, std::int64_t count, std::int32_t* out) const {
  if (count == 0) return;
  if (ids == nullptr) {
    const auto start = static_cast<hsize_t>(first);
    const auto extent = static_cast<hsize_t>(count);
    const Hdf5Handle from(H5Dget_space(dataset.id()), H5Sclose, "reading the size of /tokens of '" + path + "'");
    const Hdf5Handle to(H5Screate_simple(1, &extent, nullptr), H5Sclose, "making a dataspace");
    check_hdf5(H5Sselect_hyperslab(from.id(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr), "selecting tokens");
    check_hdf5(H5Dread(dataset.id(), H5T_NATIVE_INT32, to.id(), from.id(), H5P_DEFAULT, out),
               "reading tokens of '" + path + "'");
  } else if (width == 1) {
    widen<std::uint8_t>(ids, first, count, out);
  } else if (width == 2) {
    widen<std::uint16_t>(ids, first, count, out);
  } else {
    widen<std::uint32_t>(ids, first, count, out);
  }
}

void TokenFile::Contents::check(std::int64_t first, std::int64_t count, const std::int32_t* copied) const {
  // As unsigned, so that a uint32 id beyond int32 counts as too large.
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<std::uint32_t>(copied[i]));
  if (static_cast<std::int64_t>(largest) < vocab) return;
  const auto* bad =
      std::find_if(copied, copied + count, [&](std::int32_t id) { return static_cast<std::uint32_t>(id) >= vocab; });
  std::string text = where() + " (" + to_string(format) + "): the id at position " + std::to_string(first + (bad - copied)) +
                     " is " + std::to_string(static_cast<std::uint32_t>(*bad)) +
                     ", not below model.vocab = " + std::to_string(vocab) +
                     "; set model.vocab to the vocabulary of the tokenizer that made the file";
  if (format == TokenFormat::flat_uint16) text += ", or give a token file: this one has no header that says it is one";
  throw InputError(text);
}

}  // namespace minipipe::data
