#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::data {

// Owns one HDF5 identifier (file, dataset, dataspace, type, attribute, property list) and closes it once.
// Movable, not copyable; an empty handle is allowed. Files are to be closed last: declare them first.
class Hdf5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  Hdf5Handle() = default;

  // Takes over `id`, to be closed by `closer`; throws RunError with `what` if it is not valid, that is if the call that made it
  // failed.
  Hdf5Handle(hid_t id, Close closer, const std::string& what) : id_(id), close_(closer) {
    if (id < 0) throw RunError("HDF5: " + what + " failed");
  }

  Hdf5Handle(Hdf5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Handle& operator=(Hdf5Handle&& other) noexcept {
    if (this != &other) {
      release();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  ~Hdf5Handle() { release(); }

  hid_t id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }

  // Closes now and reports failure, where a destructor could only swallow it: a file's data may reach the disk only here.
  void close(const std::string& what) {
    if (id_ < 0) return;
    if (close_(std::exchange(id_, -1)) < 0) throw RunError("HDF5: closing " + what + " failed (is the disk full?)");
  }

 private:
  void release() noexcept {
    if (id_ >= 0) close_(std::exchange(id_, -1));
  }

  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Throws RunError if an HDF5 call returned failure.
inline void check_hdf5(herr_t status, const std::string& what) {
  if (status < 0) throw RunError("HDF5: " + what + " failed");
}

// While alive, HDF5 prints no error stack of its own: callers turn return codes into messages that say what to do.
class Hdf5Quiet {
 public:
  Hdf5Quiet() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &client_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Hdf5Quiet(const Hdf5Quiet&) = delete;
  Hdf5Quiet& operator=(const Hdf5Quiet&) = delete;
  ~Hdf5Quiet() { H5Eset_auto2(H5E_DEFAULT, function_, client_); }

 private:
  H5E_auto2_t function_ = nullptr;
  void* client_ = nullptr;
};

}  // namespace minipipe::data
