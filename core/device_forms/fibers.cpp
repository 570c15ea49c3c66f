#include "core/device_forms/fibers.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace minipipe::core::device_forms {

namespace {

constexpr std::size_t stack_bytes = std::size_t(256) << 10;
constexpr std::size_t guard_bytes = 4096;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "device forms: %s\n", what);
  std::abort();
}

// A place to be switched to. The address sanitizer must be told which stack is in use.
struct Context {
  ucontext_t machine{};
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* shadow = nullptr;
};

void entered(Context& here, [[maybe_unused]] const void** old_bottom = nullptr,
             [[maybe_unused]] std::size_t* old_size = nullptr) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(here.shadow, old_bottom, old_size);
#else
  static_cast<void>(here);
#endif
}

void switch_to(Context& from, Context& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.shadow, to.bottom, to.size);
#endif
  swapcontext(&from.machine, &to.machine);
  entered(from);
}

struct Fiber {
  Context context;
  bool finished = true;
  // What it waits for: the meeting that begins at fiber `meeting` and has as many members, and how often that took place
  // before.
  int meeting = -1, members = 0;
  std::int64_t after = 0;
};

// All fibers that wait in one place. Of two with the same first fiber the sizes differ: the team's and the lanes' of a thread.
struct Meeting {
  int arrived = 0;
  std::int64_t held = 0;
};

}  // namespace

struct Fibers::State {
  Context outside;
  Fiber fibers[most];
  Meeting meetings[most][2];
  char* stacks[most] = {};
  Body body = nullptr;
  void* argument = nullptr;
  int count = 0, left = 0, running = 0, step = 1;

  Meeting& meeting(int first, int members) { return meetings[first][members == count ? 0 : 1]; }

  bool can_run(const Fiber& f) { return !f.finished && (f.meeting < 0 || meeting(f.meeting, f.members).held > f.after); }

  // Leaves the running fiber for the next that can run, or for run() after the last.
  void leave(Context& from) {
    if (left == 0) return switch_to(from, outside);
    for (int tried = 0; tried < count; ++tried) {
      running = (running + step + count) % count;
      if (!can_run(fibers[running])) continue;
      if (&fibers[running].context != &from) switch_to(from, fibers[running].context);
      return;
    }
    fail("a kernel has a barrier that not all members of the team come to");
  }

  // On the stack of a fiber: the fiber with this index in every team from now on.
  void live(int index) {
    Fiber& self = fibers[index];
    // Who comes first comes from outside.
    const bool first = outside.bottom == nullptr;
    entered(self.context, first ? &outside.bottom : nullptr, first ? &outside.size : nullptr);
    for (;;) {
      body(argument, index);
      self.finished = true;
      --left;
      leave(self.context);
    }
  }
};

Fibers::Fibers() : state_(new State) {}

Fibers::~Fibers() {
  for (char* stack : state_->stacks) {
    if (stack != nullptr) munmap(stack, guard_bytes + stack_bytes);
  }
  delete state_;
}

Fibers& Fibers::of_this_thread() {
  static thread_local Fibers fibers;
  return fibers;
}

void Fibers::run(int count, bool descending, Body body, void* argument) {
  State& s = *state_;
  if (count > most || s.left > 0) fail("a team is too large, or within a team");
  for (int i = 0; i < count; ++i) {
    Fiber& f = s.fibers[i];
    f.finished = false;
    f.meeting = -1;
    if (s.stacks[i] != nullptr) continue;
    void* memory = mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0) fail("no memory for the stack of a member");
    s.stacks[i] = static_cast<char*>(memory);
    f.context.bottom = s.stacks[i] + guard_bytes;
    f.context.size = stack_bytes;
    getcontext(&f.context.machine);
    f.context.machine.uc_stack.ss_sp = s.stacks[i] + guard_bytes;
    f.context.machine.uc_stack.ss_size = stack_bytes;
    f.context.machine.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(&s);
    // makecontext hands on integers only.
    const auto start = +[](unsigned high, unsigned low, int index) {
      reinterpret_cast<State*>((static_cast<std::uintptr_t>(high) << 32) | low)->live(index);
    };
    makecontext(&f.context.machine, reinterpret_cast<void (*)()>(start), 3, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address), i);
  }
  for (auto& pair : s.meetings) pair[0] = pair[1] = {};
  s.body = body;
  s.argument = argument;
  s.count = s.left = count;
  s.step = descending ? -1 : 1;
  s.running = descending ? 0 : count - 1;
  s.leave(s.outside);
}

void Fibers::wait(int first, int size) {
  if (size == 1) return;
  State& s = *state_;
  Meeting& meeting = s.meeting(first, size);
  if (++meeting.arrived == size) {
    meeting.arrived = 0;
    ++meeting.held;
    return;
  }
  Fiber& self = s.fibers[s.running];
  self.meeting = first;
  self.members = size;
  self.after = meeting.held;
  s.leave(self.context);
  self.meeting = -1;
}

}  // namespace minipipe::core::device_forms
