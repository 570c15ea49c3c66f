#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "schedules/error.hpp"

namespace minipipe::core::hdf5 {

// Thin helpers over the C interface: identifiers that close themselves, and calls whose results are checked. Failures throw
// RunError "FILE: what: reason", where the reason is the innermost text of HDF5's error stack (it holds errno's text).

// Owns an identifier. Movable.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  // Closes now and returns the status, for the callers to whom a failed close is a failed write.
  herr_t reset() { return id_ >= 0 ? closer_(std::exchange(id_, -1)) : 0; }

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

// The memory and file type of a C++ number.
template <typename T>
hid_t native_type() {
  if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
  if constexpr (std::is_same_v<T, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return H5T_NATIVE_UINT64;
}

// A fixed-length, null-padded string type.
Handle string_type(std::size_t length);

// Why the last call failed. `silence` stops HDF5 from printing the same to standard error by itself.
std::string reason();
void silence();

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what);

// An open file; remembers its name for the messages. close() throws if what was written could not be flushed.
class File {
 public:
  static File open(const std::filesystem::path& path, bool write);
  static File create(const std::filesystem::path& path);
  File(std::filesystem::path path, hid_t id) : path_(std::move(path)), handle_(id, H5Fclose) {}

  hid_t id() const { return handle_.get(); }
  const std::filesystem::path& path() const { return path_; }
  void close();

  bool has(const std::string& name) const;  // any link of a path of links, each step checked
  // Names of the links in a group, sorted; empty if the group is not there.
  std::vector<std::string> names(const std::string& group) const;

  Handle open_group(const std::string& name) const;
  Handle make_group(const std::string& name) const;  // with its parents; opens it if it is there
  Handle open_dataset(const std::string& name) const;
  std::vector<hsize_t> shape(const std::string& dataset) const;

  // A contiguous dataset, written whole.
  template <typename T>
  void write(const std::string& name, const std::vector<hsize_t>& shape, const T* values) const {
    write_raw(name, shape, native_type<T>(), values);
  }
  template <typename T>
  std::vector<T> read(const std::string& name) const {
    std::vector<T> values(element_count(shape(name)));
    read_raw(name, native_type<T>(), values.data());
    return values;
  }
  // One-dimensional extendable dataset; made at the first append, with its parent groups.
  template <typename T>
  void append(const std::string& name, const std::vector<T>& values) const {
    append_raw(name, native_type<T>(), values.data(), values.size());
  }
  void append_raw(const std::string& name, hid_t type, const void* values, hsize_t count) const;
  void read_raw(const std::string& name, hid_t type, void* values) const;
  void write_raw(const std::string& name, const std::vector<hsize_t>& shape, hid_t type, const void* values) const;
  void shrink(const std::string& name, hsize_t count) const;

  // Attributes of `object` ("/" for the root group). Set replaces.
  template <typename T>
  void set(const std::string& object, const std::string& key, T value) const {
    set_raw(object, key, native_type<T>(), &value);
  }
  void set(const std::string& object, const std::string& key, const std::string& value) const;
  template <typename T>
  T get(const std::string& object, const std::string& key) const {
    T value{};
    get_raw(object, key, native_type<T>(), &value);
    return value;
  }
  std::string get_text(const std::string& object, const std::string& key) const;
  bool has_attribute(const std::string& object, const std::string& key) const;
  std::vector<std::string> attribute_names(const std::string& object) const;

  static std::size_t element_count(const std::vector<hsize_t>& shape);

 private:
  void set_raw(const std::string& object, const std::string& key, hid_t type, const void* value) const;
  void get_raw(const std::string& object, const std::string& key, hid_t type, void* value) const;
  template <typename Status>
  Status check(Status status, const char* what, const std::string& name) const {
    if (status < 0) fail(path_, std::string("cannot ") + what + " " + name);
    return status;
  }

  std::filesystem::path path_;
  Handle handle_;
};

}  // namespace minipipe::core::hdf5
