#pragma once

#include <functional>

#include "core/bench/report.hpp"
#include "core/deck/deck.hpp"

namespace minipipe::core {

inline constexpr int least_repeat = 3;  // quartiles of fewer samples say nothing
void check_repeat(int repeat);          // InputError below least_repeat

// Measures the deck's kernels and a training step of its model as one stage in this process. Needs the memory of one stage, no
// token files. `say` is told what is measured next. The caller adds version and git hash. Throws InputError as
// check_repeat, and for models that cannot be built.
BenchReport run_bench(const Deck& deck, int repeat, const std::function<void(const std::string&)>& say = {});

// The parts.
std::vector<KernelResult> bench_kernels(const Deck& deck, int repeat, References& references);
StepResult bench_step(const Deck& deck, int repeat);  // without the shares of matrix rates

// The component in the label of a kernel, minipipe::component::operation; "kokkos" for kernels of Kokkos itself.
std::string group_of(const std::string& label);

}  // namespace minipipe::core
