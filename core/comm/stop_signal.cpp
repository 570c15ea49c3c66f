#include "core/comm/stop_signal.hpp"

#include <csignal>

namespace minipipe::core {

namespace {

volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t seen[NSIG] = {};

// Only what POSIX allows in a handler: flags and signal().
extern "C" void on_stop_signal(int number) {
  if (first_signal == 0) {
    first_signal = number;
  }
  if (seen[number] != 0) {
    ::signal(number, SIG_DFL);
  }
  seen[number] = 1;
}

}  // namespace

StopSignal::StopSignal() {
  first_signal = 0;
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    seen[signals_[i]] = 0;
    struct sigaction action {};
    action.sa_handler = on_stop_signal;
    action.sa_flags = SA_RESTART;  // reads and writes under way are not to fail
    sigemptyset(&action.sa_mask);
    sigaction(signals_[i], &action, &former_[i]);
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    sigaction(signals_[i], &former_[i], nullptr);
  }
}

int StopSignal::received() const { return static_cast<int>(first_signal); }

}  // namespace minipipe::core
