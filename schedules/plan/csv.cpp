#include "schedules/plan/csv.hpp"

#include <algorithm>
#include <istream>
#include <ostream>
#include <string_view>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Cells of torch.distributed.pipelining that have no effect here: what they say concerns sharded parameters.
bool is_ignored(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  text = text.substr(0, text.find_last_not_of("0123456789") + 1);
  return text == "UNSHARD" || text == "RESHARD" || text == "REDUCE_GRAD";
}

// Appends the actions of a cell. "(3F1;0B2)OVERLAP_F_B", written for two passes run side by side, is two cells here.
bool read_cell(std::string_view text, ActionList& list) {
  if (is_ignored(text)) return true;
  if (text.starts_with('(') && text.ends_with(")OVERLAP_F_B")) {
    text = text.substr(1, text.find(')') - 1);
    const auto middle = text.find(';');
    return middle != std::string_view::npos && read_cell(trim(text.substr(0, middle)), list) &&
           read_cell(trim(text.substr(middle + 1)), list);
  }
  const auto action = parse_action(text);
  if (action) list.push_back(*action);
  return action.has_value();
}

}  // namespace

Plan read_csv(std::istream& stream, const std::string& name) {
  Plan plan;
  std::string line;
  for (int line_number = 1; std::getline(stream, line); ++line_number) {
    std::string_view rest = line;
    if (line_number == 1 && rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);  // the byte order mark of some editors
    if (trim(rest).empty() || trim(rest).starts_with('#')) continue;
    ActionList& list = plan.ranks.emplace_back();
    RowSource& source = plan.sources.emplace_back();
    source.line = line_number;
    for (int cell = 1;; ++cell) {
      const auto comma = rest.find(',');
      const std::string_view text = trim(rest.substr(0, comma));
      if (!text.empty() && !read_cell(text, list)) {
        throw InputError(name + ": " + place_text(plan, plan.ranks.size() - 1) + ", cell " + std::to_string(cell) + ": '" +
                         std::string(text) +
                         "' is not an action; write stage, kind and microbatch, as in 2F0 (kinds: F B I W U D SEND_F RECV_F "
                         "SEND_B RECV_B)");
      }
      source.cells.resize(list.size(), cell);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  if (stream.bad()) throw InputError(name + ": cannot be read to its end");
  if (plan.ranks.empty()) throw InputError(name + ": holds no actions; write one row of cells per rank");
  return plan;
}

void write_csv(std::ostream& stream, const Plan& plan) {
  for (const ActionList& list : plan.ranks) {
    if (list.empty()) stream << ',';
    for (std::size_t i = 0; i < list.size(); ++i) stream << (i == 0 ? "" : ",") << to_text(list[i]);
    stream << '\n';
  }
}

}  // namespace minipipe::schedules
