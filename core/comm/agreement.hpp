#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <string>

namespace minipipe::core {

// Marks an error that every rank has: agree_or_throw throws InputError or RunError that also are an Agreed. The job can then
// end in order, and one rank prints for all. Any other error is of one rank alone.
struct Agreed {
  virtual ~Agreed() = default;
};

// All functions here are collective over `comm` and block.

// True on every rank if `ok` is true on every rank.
bool all_agree(MPI_Comm comm, bool ok);

// Returns if no rank passes an exception. Otherwise every rank throws the same: class (InputError or else RunError) and text
// of the lowest rank that failed, so that a job ends with one status and one rank can print for all. Texts of ranks other
// than 0 begin with "rank <r>: ".
void agree_or_throw(MPI_Comm comm, std::exception_ptr mine);

// Calls `work` and agrees on the outcome: `agree(comm, [&] { read(file); })`.
template <class Work>
void agree(MPI_Comm comm, Work&& work) {
  std::exception_ptr mine;
  try {
    work();
  } catch (...) {
    mine = std::current_exception();
  }
  agree_or_throw(comm, mine);
}

// `text` of rank `root`, on all ranks.
void broadcast_text(MPI_Comm comm, std::string& text, int root);

// True on every rank if `value` is the same on all ranks.
bool same_on_all(MPI_Comm comm, std::uint64_t value);

}  // namespace minipipe::core
