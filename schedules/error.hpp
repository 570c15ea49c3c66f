#pragma once

#include <stdexcept>
#include <string>

namespace minipipe {

// Something the user gave is wrong: a deck, a file, a plan, a rank count. The program ends with exit status 2.
// The text names the file, the key, the value and the remedy.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something failed while running: a peer, a device, a full disk. The program ends with exit status 3.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace minipipe
