#include "data/token_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "data/file_descriptor.hpp"

namespace minipipe::data {
namespace {

namespace fs = std::filesystem;

constexpr hsize_t chunk_tokens = 1 << 17;

// What the chunk index and the other metadata need at most, beside the whole chunks, per byte of tokens and in all.
constexpr std::int64_t metadata_share = 64;
constexpr std::int64_t metadata_bytes = 1 << 18;

void write_attribute(hid_t file, const char* name, hid_t type, const void* value, hid_t stored) {
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, "making a dataspace");
  const Hdf5Handle attribute(H5Acreate2(file, name, stored, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                             std::string("making the attribute ") + name);
  check_hdf5(H5Awrite(attribute.id(), type, value), std::string("writing the attribute ") + name);
}

void write_text(hid_t file, const char* name, const std::string& value) {
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "copying a type");
  check_hdf5(H5Tset_size(type.id(), value.size() + 1), "setting a type's size");
  write_attribute(file, name, type.id(), value.c_str(), type.id());
}

// The file that a symbolic link leads to, so that the link is not replaced.
std::string followed(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  // One link by hand, because of one that leads to no file yet weakly_canonical would make nothing.
  const fs::path target = fs::weakly_canonical(fs::path(path).parent_path() / fs::read_symlink(path, error), error);
  return error ? path : target.string();
}

[[noreturn]] void fail(const std::string& path, const std::string& doing, int error) {
  throw RunError("cannot write '" + path + "': " + doing + " failed" +
                 (error != 0 ? " (" + std::string(std::strerror(error)) + ")" : "") +
                 "; check that the folder is writable and has space left");
}

}  // namespace

TokenWriter::TokenWriter(const std::string& path, std::int64_t vocab, const std::string& tokenizer)
    : path_(followed(path)), temporary_(path_ + ".tmp") {
  std::error_code ignored;
  if (fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored)) {
    throw RunError("cannot write '" + path + "': it is there and is not a regular file; give another --out, or move it away");
  }
  const Hdf5Quiet quiet;
  // Opened by hand first, because errno says why a file cannot be made and HDF5 does not.
  descriptor_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!descriptor_) fail(path_, "making " + temporary_, errno);
  try {
    width_ = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
    file_ = Hdf5Handle(H5Fcreate(temporary_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose,
                       "making '" + temporary_ + "'");
    const hsize_t none = 0;
    const hsize_t unlimited = H5S_UNLIMITED;
    const Hdf5Handle space(H5Screate_simple(1, &none, &unlimited), H5Sclose, "making a dataspace");
    const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "making a property list");
    check_hdf5(H5Pset_chunk(layout.id(), 1, &chunk_tokens), "setting the chunk size");
    check_hdf5(H5Pset_fill_time(layout.id(), H5D_FILL_TIME_NEVER), "setting the fill time");
    const hid_t stored = width_ == 1 ? H5T_STD_U8LE : width_ == 2 ? H5T_STD_U16LE : H5T_STD_U32LE;
    dataset_ = Hdf5Handle(H5Dcreate2(file_.id(), "tokens", stored, space.id(), H5P_DEFAULT, layout.id(), H5P_DEFAULT), H5Dclose,
                          "making /tokens in '" + temporary_ + "'");
    reserve(0);
    const std::int64_t version = 1;
    write_text(file_.id(), "format", "minipipe tokens");
    write_attribute(file_.id(), "version", H5T_NATIVE_INT64, &version, H5T_STD_I64LE);
    write_attribute(file_.id(), "vocab", H5T_NATIVE_INT64, &vocab, H5T_STD_I64LE);
    write_text(file_.id(), "tokenizer", tokenizer);
  } catch (...) {
    dataset_ = Hdf5Handle();
    file_ = Hdf5Handle();
    ::unlink(temporary_.c_str());
    throw;
  }
}

TokenWriter::~TokenWriter() {
  if (published_) return;
  const Hdf5Quiet quiet;
  dataset_ = Hdf5Handle();
  file_ = Hdf5Handle();
  ::unlink(temporary_.c_str());
}

void TokenWriter::append(std::span<const std::uint8_t> ids) { append_as(H5T_NATIVE_UINT8, ids.data(), ids.size()); }
void TokenWriter::append(std::span<const std::uint16_t> ids) { append_as(H5T_NATIVE_UINT16, ids.data(), ids.size()); }
void TokenWriter::append(std::span<const std::int32_t> ids) { append_as(H5T_NATIVE_INT32, ids.data(), ids.size()); }

void TokenWriter::reserve(std::int64_t tokens) {
  const std::int64_t chunks = (tokens + static_cast<std::int64_t>(chunk_tokens) - 1) / static_cast<std::int64_t>(chunk_tokens);
  const std::int64_t data = chunks * static_cast<std::int64_t>(chunk_tokens) * width_;
  const std::int64_t bytes = data + data / metadata_share + metadata_bytes;
  if (bytes <= reserved_) return;
  const int error = ::posix_fallocate(descriptor_.get(), reserved_, bytes - reserved_);
  if (error != 0) fail(path_, "reserving " + std::to_string(bytes) + " bytes", error);
  reserved_ = bytes;
}

void TokenWriter::append_as(hid_t native, const void* ids, std::size_t count) {
  if (count == 0) return;
  const Hdf5Quiet quiet;
  const auto start = static_cast<hsize_t>(size_);
  const auto extent = static_cast<hsize_t>(count);
  const hsize_t total = start + extent;
  reserve(static_cast<std::int64_t>(total));
  errno = 0;
  if (H5Dset_extent(dataset_.id(), &total) < 0) fail(path_, "extending /tokens", errno);
  const Hdf5Handle to(H5Dget_space(dataset_.id()), H5Sclose, "reading the size of /tokens");
  const Hdf5Handle from(H5Screate_simple(1, &extent, nullptr), H5Sclose, "making a dataspace");
  check_hdf5(H5Sselect_hyperslab(to.id(), H5S_SELECT_SET, &start, nullptr, &extent, nullptr), "selecting tokens");
  errno = 0;
  if (H5Dwrite(dataset_.id(), native, from.id(), to.id(), H5P_DEFAULT, ids) < 0) fail(path_, "writing tokens", errno);
  size_ += static_cast<std::int64_t>(count);
}

void TokenWriter::set_entropy(double entropy) {
  const Hdf5Quiet quiet;
  write_attribute(file_.id(), "entropy", H5T_NATIVE_DOUBLE, &entropy, H5T_IEEE_F64LE);
}

void TokenWriter::close() {
  const Hdf5Quiet quiet;
  errno = 0;
  if (H5Dflush(dataset_.id()) < 0 || H5Fflush(file_.id(), H5F_SCOPE_LOCAL) < 0) fail(path_, "flushing", errno);
  hsize_t used = 0;
  check_hdf5(H5Fget_filesize(file_.id(), &used), "reading the size of '" + temporary_ + "'");
  dataset_.close("/tokens of '" + temporary_ + "'");
  file_.close("'" + temporary_ + "'");
  // Gives back what was reserved and not used. On the disk before the rename: after a crash there is the old file or the new
  // one.
  if (::ftruncate(descriptor_.get(), static_cast<off_t>(used)) != 0 || ::fsync(descriptor_.get()) != 0) {
    fail(path_, "flushing", errno);
  }
  Hdf5Handle(H5Fopen(temporary_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "opening '" + temporary_ + "' again");
}

void TokenWriter::publish() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "renaming " + temporary_, errno);
  published_ = true;
}

}  // namespace minipipe::data
