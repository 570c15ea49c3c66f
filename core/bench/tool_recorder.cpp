#include "core/bench/tool_recorder.hpp"

#include <string_view>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {
ToolRecorder* active = nullptr;  // callbacks are plain functions
}

struct ToolCallbacks {
  static void begin_kernel(const char* label, std::uint32_t, std::uint64_t*) {
    if (active->depth_ == 0) ++active->events_.kernels;
    active->begin(label);
  }
  static void end_kernel(std::uint64_t) { active->end(); }

  static void push_region(const char* name) {
    const bool product = std::string_view(name).starts_with("minipipe::gemm");
    active->regions_.push_back(product ? 'k' : 'r');
    if (product) begin_kernel(name, 0, nullptr);
  }
  static void pop_region() {
    // A region may have been open before the recorder was made.
    if (active->regions_.empty()) return;
    const bool product = active->regions_.back() == 'k';
    active->regions_.pop_back();
    if (product) active->end();
  }

  static void allocate(const Kokkos::Tools::SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
    ToolEvents& events = active->events_;
    if (events.allocations++ == 0) events.first_allocation = label;
    events.allocated_bytes += static_cast<std::int64_t>(bytes);
  }
  static void deallocate(const Kokkos::Tools::SpaceHandle, const char*, const void*, std::uint64_t) {
    ++active->events_.deallocations;
  }

  static void begin_copy(const Kokkos::Tools::SpaceHandle, const char* to, const void*, const Kokkos::Tools::SpaceHandle,
                         const char* from, const void*, std::uint64_t bytes) {
    ToolEvents& events = active->events_;
    if (events.deep_copies++ == 0) events.first_deep_copy = std::string(from) + " to " + to;
    events.deep_copied_bytes += static_cast<std::int64_t>(bytes);
    active->begin("deep_copy");
  }
  static void end_copy() { active->end(); }

  static void begin_fence(const char* name, std::uint32_t, std::uint64_t*) {
    // Neither the recorder's own nor those that Kokkos adds for its callbacks.
    if (active->waiting_ || std::string_view(name).starts_with("Kokkos::Tools::")) return;
    ++active->events_.fences;
  }
};

ToolRecorder::ToolRecorder() {
  if (active != nullptr) throw RunError("two tool recorders at the same time");
  namespace tools = Kokkos::Tools::Experimental;
  before_ = tools::get_callbacks();
  active = this;
  tools::set_callbacks({});
  tools::set_begin_parallel_for_callback(ToolCallbacks::begin_kernel);
  tools::set_end_parallel_for_callback(ToolCallbacks::end_kernel);
  tools::set_begin_parallel_reduce_callback(ToolCallbacks::begin_kernel);
  tools::set_end_parallel_reduce_callback(ToolCallbacks::end_kernel);
  tools::set_begin_parallel_scan_callback(ToolCallbacks::begin_kernel);
  tools::set_end_parallel_scan_callback(ToolCallbacks::end_kernel);
  tools::set_push_region_callback(ToolCallbacks::push_region);
  tools::set_pop_region_callback(ToolCallbacks::pop_region);
  tools::set_allocate_data_callback(ToolCallbacks::allocate);
  tools::set_deallocate_data_callback(ToolCallbacks::deallocate);
  tools::set_begin_deep_copy_callback(ToolCallbacks::begin_copy);
  tools::set_end_deep_copy_callback(ToolCallbacks::end_copy);
  tools::set_begin_fence_callback(ToolCallbacks::begin_fence);
}

ToolRecorder::~ToolRecorder() {
  Kokkos::Tools::Experimental::set_callbacks(before_);
  active = nullptr;
}

void ToolRecorder::begin(const char* label) {
  if (depth_++ > 0) return;
  auto found = times_.find(std::string_view(label));
  if (found == times_.end()) found = times_.emplace(label, LabelTime{}).first;
  open_ = &found->second;
  began_ = clock_.seconds();
}

void ToolRecorder::end() {
  if (depth_ == 0 || --depth_ > 0) return;
  if constexpr (!on_host) {
    waiting_ = true;
    Kokkos::fence();
    waiting_ = false;
  }
  ++open_->calls;
  open_->seconds += clock_.seconds() - began_;
}

double ToolRecorder::kernel_seconds() const {
  double sum = 0;
  for (const auto& [label, time] : times_) sum += time.seconds;
  return sum;
}

void ToolRecorder::clear() {
  events_ = {};
  for (auto& [label, time] : times_) time = {};
}

}  // namespace minipipe::core
