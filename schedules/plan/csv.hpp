#pragma once

#include <iosfwd>
#include <string>

#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// Text form of a plan: one row per rank, cells such as 2F0, 1I3, 0U2, 2SEND_F0 separated by commas. It is the form that
// torch.distributed.pipelining reads and writes, plus U (update) and D (drain). Blank cells, blank lines and lines that begin
// with # are skipped, as is a byte order mark; a rank without actions is a row with a lone comma. Read, too: torch's cells
// UNSHARD, RESHARD and REDUCE_GRAD, which have no effect, and (3F1;0B2)OVERLAP_F_B, which stands for 3F1 and then 0B2.

// `name` is the file's name for error messages. Throws InputError naming file, row, rank, cell and its text (place_text).
// The plan knows where its actions stand (Plan::sources).
Plan read_csv(std::istream& stream, const std::string& name);

void write_csv(std::ostream& stream, const Plan& plan);

}  // namespace minipipe::schedules
