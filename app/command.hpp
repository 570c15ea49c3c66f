#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare.hpp"

namespace minipipe::app {

// What simulate --profile FILE.json simulates instead of the file's cases; 0: as the profile says.
struct SimulateSize {
  std::string schedule;  // empty: the cases
  int devices = 0;
  int microbatches = 0;
  int chunks = 2;  // interleaved: stages per device
  int replicas = 1;
  int layers = 0;
  double width = 0;
  double sequence = 0;
};

// Options of tune, and of simulate --profile.
struct TuneCommand {
  std::string profile;            // costs of layers, HDF5 or JSON; empty: the deck's
  std::string schedule = "plan";  // or "paci"
  int devices = 0;                // 0: as the deck or the profile says
  int microbatches = 0;
  double time = 0;              // seconds; 0: 10, or no limit if iterations are given
  std::int64_t iterations = 0;  // 0: no limit
  std::uint64_t seed = 1;
  double cap = 0;   // units of layer x microbatch per device; 0: none
  int stages = 0;   // most stages; 0: eight per device
  int gap = 1;      // paci: largest version gap
  std::string out;  // plan file
};

// The command line, parsed.
struct Command {
  enum class Verb { train, profile, bench, check, simulate, tune, eval, prepare, help_deck, help_deck_markdown };
  Verb verb = Verb::train;
  std::string deck;
  std::vector<std::string> overrides;  // block.key=value
  std::int64_t case_number = -1;       // of the deck's sweep; -1: none
  bool print_deck = false;             // train: print the resolved deck and stop
  bool cases = false;                  // train: print the number of cases of the sweep and stop
  bool list = false;                   // with cases: print each case

  std::string profile_out;  // profile: the file to write; empty: profile.h5 in output.directory

  // bench
  std::string bench_out, bench_json;  // files to write; empty: none
  int repeat = 15;                    // samples of everything

  // check, simulate
  std::string profile;       // use the costs of this file
  bool strict = false;       // a profile of another machine is an error
  bool all_ranks = false;    // check: a line of each rank, however many
  int stages = 0;            // 0: as the deck and the number of ranks say
  std::string export_file;   // simulate: write the plan as CSV
  std::string timeline;      // simulate: write a Chrome trace
  std::int64_t updates = 0;  // simulate: updates to simulate, 0: enough for a steady state

  // eval
  std::string checkpoint;  // "latest" or a file
  std::string dump_batch;  // write the next update's batch with its losses here

  TuneCommand tune;
  SimulateSize size;

  data::PrepareOptions prepare;
};

// Parses argc/argv. Returns an exit status instead where the work is done: --help, --version (0) or a wrong command line (2).
// `speak`: this process prints; the others stay silent.
struct Parsed {
  Command command;
  bool done = false;
  int status = 0;
};
Parsed parse_command_line(int argc, char** argv, bool speak);

}  // namespace minipipe::app
