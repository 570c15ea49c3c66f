#include "app/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace minipipe::app {

void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free number: this one, as those below are taken.
    [[maybe_unused]] const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void survive_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace minipipe::app
