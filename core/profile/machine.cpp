#include "core/profile/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "core/train/gather.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

namespace {

// Linux says it in /proc/cpuinfo; where it does not (some ARM kernels), the architecture has to do.
std::string processor() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

}  // namespace

Machine this_machine() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return {host, processor(), ExecutionSpace::name(), ExecutionSpace().concurrency()};
}

Machine machine_of(MPI_Comm comm) {
  Machine machine = this_machine();
  const auto names = gather(comm, std::vector<char>(machine.hosts.begin(), machine.hosts.end()));
  std::set<std::string> hosts;
  for (const auto& name : names) hosts.emplace(name.begin(), name.end());
  std::string all;
  for (const std::string& host : hosts) all += (all.empty() ? "" : ",") + host;
  if (!all.empty()) machine.hosts = all;
  return machine;
}

}  // namespace minipipe::core
