#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/types/types.hpp"

namespace minipipe::core {

// What Kokkos Tools' callbacks reported. They see allocations of Views and kokkos_malloc (not those of the C++ library, of MPI
// or of oneDNN), Kokkos::deep_copy (not kernels that copy), and fences from Kokkos 3.5 on.
struct ToolEvents {
  std::int64_t allocations = 0, allocated_bytes = 0, deallocations = 0;
  std::int64_t deep_copies = 0, deep_copied_bytes = 0;
  std::int64_t fences = 0;
  std::int64_t kernels = 0;                       // parallel loops, reductions and scans, and matrix products
  std::string first_allocation, first_deep_copy;  // labels, for messages
};
inline constexpr bool tools_see_fences = KOKKOS_VERSION >= 30500;

struct LabelTime {
  std::int64_t calls = 0;
  double seconds = 0;
};

// Listens, from its construction to its destruction, to Kokkos Tools' callbacks in place of a tool that was loaded; that one is
// put back afterwards. Times every outermost kernel by its label: parallel loops, deep copies ("deep_copy") and regions whose
// names begin with "minipipe::gemm", for libraries run their loops without Kokkos. On a device each kernel is waited for, so
// that its time is its own. Only one at a time (else RunError), on the thread that uses Kokkos.
class ToolRecorder {
 public:
  ToolRecorder();
  ~ToolRecorder();
  ToolRecorder(const ToolRecorder&) = delete;
  ToolRecorder& operator=(const ToolRecorder&) = delete;

  const ToolEvents& events() const { return events_; }
  const std::map<std::string, LabelTime, std::less<>>& times() const { return times_; }
  double kernel_seconds() const;  // of all labels
  void clear();

 private:
  friend struct ToolCallbacks;
  void begin(const char* label);
  void end();

  ToolEvents events_;
  std::map<std::string, LabelTime, std::less<>> times_;
  LabelTime* open_ = nullptr;
  int depth_ = 0;
  double began_ = 0;
  bool waiting_ = false;
  std::string regions_;  // one letter per open region: 'k' is timed
  Kokkos::Timer clock_;
  Kokkos::Tools::Experimental::EventSet before_;
};

}  // namespace minipipe::core
