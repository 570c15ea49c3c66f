#include "core/device_forms/guard.hpp"

#if defined(__SANITIZE_ADDRESS__)

#include <sanitizer/asan_interface.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "core/device_forms/memory.hpp"

namespace minipipe::core::device_forms {

namespace {

// Kokkos keeps what it knows of an allocation in front of it.
constexpr std::size_t header = sizeof(Kokkos::Impl::SharedAllocationHeader);

struct Guard {
  std::mutex mutex;
  std::map<const char*, std::size_t> arrays;
  int open = 0;

  void enter() {
    const std::lock_guard lock(mutex);
    if (open++ > 0) return;
    for (const auto& [data, bytes] : arrays) __asan_unpoison_memory_region(data, bytes);
  }
  void leave() {
    const std::lock_guard lock(mutex);
    if (--open > 0) return;
    for (const auto& [data, bytes] : arrays) __asan_poison_memory_region(data, bytes);
  }
  void add(const char* data, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    arrays[data] = bytes;
    if (open == 0) __asan_poison_memory_region(data, bytes);
  }
  void remove(const char* data) {
    const std::lock_guard lock(mutex);
    const auto found = arrays.find(data);
    if (found == arrays.end()) return;
    __asan_unpoison_memory_region(data, found->second);
    arrays.erase(found);
  }
};

// Never destroyed: Kokkos gives back memory as late as when the program ends.
Guard& guard() {
  static Guard& one = *new Guard;
  return one;
}

// Libraries' products of the kernels' memory. One per open region of a thread.
thread_local std::vector<bool> products;
void push_region(const char* name) {
  products.push_back(std::string_view(name).starts_with("minipipe::gemm"));
  if (products.back()) guard().enter();
}
void pop_region() {
  if (products.empty()) return;
  if (products.back()) guard().leave();
  products.pop_back();
}

bool is_kernels(const Kokkos::Tools::SpaceHandle& space) { return std::string_view(space.name) == MemoryName::get_name(); }

}  // namespace

void guard_kernel_memory() {
  namespace tools = Kokkos::Tools::Experimental;
  const auto begin = [](const char*, std::uint32_t, std::uint64_t*) { guard().enter(); };
  const auto end = [](std::uint64_t) { guard().leave(); };
  tools::set_begin_parallel_for_callback(begin);
  tools::set_end_parallel_for_callback(end);
  tools::set_begin_parallel_reduce_callback(begin);
  tools::set_end_parallel_reduce_callback(end);
  tools::set_begin_parallel_scan_callback(begin);
  tools::set_end_parallel_scan_callback(end);
  tools::set_begin_deep_copy_callback([](Kokkos::Tools::SpaceHandle, const char*, const void*, Kokkos::Tools::SpaceHandle,
                                         const char*, const void*, std::uint64_t) { guard().enter(); });
  tools::set_end_deep_copy_callback([] { guard().leave(); });
  tools::set_push_region_callback(push_region);
  tools::set_pop_region_callback(pop_region);
  tools::set_allocate_data_callback(
      [](const Kokkos::Tools::SpaceHandle space, const char*, const void* data, std::uint64_t bytes) {
        if (is_kernels(space)) guard().add(static_cast<const char*>(data) + header, bytes);
      });
  tools::set_deallocate_data_callback([](const Kokkos::Tools::SpaceHandle space, const char*, const void* data, std::uint64_t) {
    if (is_kernels(space)) guard().remove(static_cast<const char*>(data) + header);
  });
}

}  // namespace minipipe::core::device_forms

#else

namespace minipipe::core::device_forms {
void guard_kernel_memory() {}
}  // namespace minipipe::core::device_forms

#endif
