#include "core/comm/agreement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/comm/error_text.hpp"
#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

int rank_of(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

template <class Error>
struct AgreedError : Error, Agreed {
  using Error::Error;
};

struct Failure {
  int is_input_error = 0;
  std::string text;
};

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const InputError& error) {
    return {1, error.what()};
  } catch (const std::exception& error) {
    return {0, error_text(error)};
  } catch (...) {
    return {0, "unknown failure"};
  }
}

}  // namespace

bool all_agree(MPI_Comm comm, bool ok) {
  int all = ok ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  return all != 0;
}

void agree_or_throw(MPI_Comm comm, std::exception_ptr mine) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const int rank = rank_of(comm);
  int first = mine ? rank : size;
  check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  if (first == size) {
    return;
  }
  Failure failure;
  if (rank == first) {
    failure = describe(mine);
    if (rank != 0) {
      failure.text = "rank " + std::to_string(rank) + ": " + failure.text;
    }
  }
  check(MPI_Bcast(&failure.is_input_error, 1, MPI_INT, first, comm), "MPI_Bcast");
  broadcast_text(comm, failure.text, first);
  if (failure.is_input_error != 0) {
    throw AgreedError<InputError>(failure.text);
  }
  throw AgreedError<RunError>(failure.text);
}

void broadcast_text(MPI_Comm comm, std::string& text, int root) {
  constexpr std::uint64_t piece = 1u << 30;  // a count is an int
  std::uint64_t length = text.size();
  check(MPI_Bcast(&length, 1, MPI_UINT64_T, root, comm), "MPI_Bcast");
  text.resize(length);
  for (std::uint64_t begin = 0; begin < length; begin += piece) {
    const auto count = static_cast<int>(std::min(piece, length - begin));
    check(MPI_Bcast(text.data() + begin, count, MPI_CHAR, root, comm), "MPI_Bcast");
  }
}

bool same_on_all(MPI_Comm comm, std::uint64_t value) {
  // The smallest complement is the complement of the largest value.
  std::array<std::uint64_t, 2> smallest{value, ~value};
  check(MPI_Allreduce(MPI_IN_PLACE, smallest.data(), 2, MPI_UINT64_T, MPI_MIN, comm), "MPI_Allreduce");
  return smallest[0] == ~smallest[1];
}

}  // namespace minipipe::core
