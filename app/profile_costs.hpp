#pragma once

#include <string>

#include "core/tune/profile_file.hpp"

namespace minipipe::app {

// A file of minipipe profile (HDF5), by its name.
bool is_measured(const std::string& profile);

// A JSON profile. InputError for a file of another form, with what to do with it.
core::ProfileFile read_costs(const std::string& profile);

}  // namespace minipipe::app
