#pragma once

#include <signal.h>

#include <array>

namespace minipipe::core {

// Turns SIGTERM, SIGINT, SIGUSR1 and SIGHUP (unless that is ignored, as under nohup) into a flag while it lives, so that a run
// can stop at a good place. The first signal of a
// kind only sets the flag; the second restores the default action (launchers often deliver one signal twice), so that the
// third ends the process. At most one object at a time. The destructor puts the former handlers back.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The number of the first signal that came, 0 if none has.
  int received() const;

 private:
  static constexpr std::array<int, 4> signals_{SIGTERM, SIGINT, SIGUSR1, SIGHUP};
  std::array<struct sigaction, 4> former_{};
  stack_t former_stack_{};
};

}  // namespace minipipe::core
