#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tune/profile_file.hpp"

namespace minipipe::app {

// A file of minipipe profile (HDF5), by its name.
bool is_measured(const std::string& profile);

// A JSON profile. InputError for a file of another form, with what to do with it.
core::ProfileFile read_costs(const std::string& profile);

// Ticks are whole numbers, and are written as such.
inline std::int64_t whole(double ticks) { return static_cast<std::int64_t>(ticks); }
inline std::vector<std::int64_t> whole(const std::vector<double>& ticks) { return {ticks.begin(), ticks.end()}; }

}  // namespace minipipe::app
