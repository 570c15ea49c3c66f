#pragma once

namespace minipipe::core::device_forms {

// Many threads of control on one thread of the processor, each with a stack of its own; one runs until it waits for others.
// What they do is the same in every run, and what lacks a barrier goes wrong in every run: a member goes as far ahead of the
// others, and they stay as far behind, as barriers allow.
class Fibers {
 public:
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Those of the calling thread.
  static Fibers& of_this_thread();

  // body(argument, i) for all i < count on fibers, beginning with the first, or with the last if `descending`. Not from a
  // fiber.
  using Body = void (*)(void* argument, int index);
  void run(int count, bool descending, Body body, void* argument);

  // From a fiber: returns once all of [first, first + size), the caller among them, are here. Ends the program with a message
  // if some of them wait elsewhere or have finished.
  void wait(int first, int size);

  static constexpr int most = 256;

 private:
  Fibers();
  ~Fibers();
  struct State;
  State* state_;
};

}  // namespace minipipe::core::device_forms
