#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare.hpp"

namespace minipipe::app {

// The command line, parsed.
struct Command {
  enum class Verb { train, check, simulate, eval, prepare, help_deck, help_deck_markdown };
  Verb verb = Verb::train;
  std::string deck;
  std::vector<std::string> overrides;  // block.key=value
  std::int64_t case_number = -1;       // of the deck's sweep; -1: none
  bool print_deck = false;             // train: print the resolved deck and stop
  bool cases = false;                  // train: print the number of cases of the sweep and stop
  bool list = false;                   // with cases: print each case

  // check, simulate
  int stages = 0;            // 0: as the deck and the number of ranks say
  std::string export_file;   // simulate: write the plan as CSV
  std::string timeline;      // simulate: write a Chrome trace
  std::int64_t updates = 0;  // simulate: updates to simulate, 0: enough for a steady state

  // eval
  std::string checkpoint;  // "latest" or a file
  std::string dump_batch;  // write the next update's batch with its losses here

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
