#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "schedules/tune/tuner.hpp"

namespace minipipe::core {

// What a plan was made for; the comment lines "# key: value" at the head of its file.
struct PlanHeader {
  std::string model;  // name of the profile
  int layers = 0;     // 0: the file does not say (it was not made by the tuner)
  int devices = 0;    // 0: the file does not say
  int microbatches = 0;
  std::string profile;  // fingerprint of all costs
  std::string machine;  // where the costs were measured; "any" if nowhere in particular
  std::vector<int> partition;
  double makespan = 0;
};

// 16 hexadecimal digits that differ if any cost of the profile differs.
std::string fingerprint(const schedules::CostProfile& profile);

// This machine, as a profile measured on it should name it.
std::string machine_name();

PlanHeader header_of(const schedules::TunedPlan& plan, const schedules::CostProfile& profile, int microbatches,
                     const std::string& machine);

// The file schedule.name = "plan" reads: header, then one row of cells per device.
void write_plan_file(std::ostream& stream, const PlanHeader& header, const schedules::Plan& order);

// InputError for a header line that does not hold what its key says. A file without header gives an empty header.
PlanHeader read_plan_header(std::istream& stream, const std::string& file);

// Throws InputError if the deck runs a plan (schedule.name = "plan") that says it was made for another number of layers,
// another partition, other microbatches, another number of devices (`ranks` > 1) or another machine.
void check_plan_header(const Deck& deck, int ranks);

}  // namespace minipipe::core
