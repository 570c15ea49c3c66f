#pragma once

namespace minipipe::app {

// The environment variable with the seconds that MPI's start, reading the deck and MPI's end may take.
inline constexpr const char* start_limit_variable = "MINIPIPE_START_LIMIT";

// Its value; 300 if it is not set or cannot be used. 0: no limit.
double start_limit();

// Throws InputError where the variable is set and is not a number of 0 or more.
void check_start_limit();

}  // namespace minipipe::app
