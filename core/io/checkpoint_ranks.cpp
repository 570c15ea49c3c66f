#include "core/io/checkpoint_ranks.hpp"

#include <cstddef>
#include <exception>
#include <limits>

#include "schedules/error.hpp"

namespace minipipe::core::checkpoint {

void require_sent(int rc, const char* what) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  const bool known = MPI_Error_string(rc, text, &length) == MPI_SUCCESS;
  throw RunError(std::string(what) + ": " +
                 (known ? std::string(text, static_cast<std::size_t>(length)) : "MPI error " + std::to_string(rc)));
}

Ranks::Ranks(MPI_Comm comm) : comm_(comm) {
  require_sent(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  require_sent(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

void Ranks::together(const std::function<void()>& work) const {
  std::string text;
  bool bad = false;
  try {
    work();
  } catch (const std::exception& error) {
    text = error.what();
    bad = true;
  }
  int failed = bad ? rank_ : size_;
  require_sent(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, comm_), "agreeing on a checkpoint");
  if (failed == size_) return;
  int length = static_cast<int>(text.size());
  require_sent(MPI_Bcast(&length, 1, MPI_INT, failed, comm_), "agreeing on a checkpoint");
  text.resize(static_cast<std::size_t>(length));
  require_sent(MPI_Bcast(text.data(), length, MPI_CHAR, failed, comm_), "agreeing on a checkpoint");
  throw RunError("checkpoint not written (rank " + std::to_string(failed) + "): " + text);
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  long long total = static_cast<long long>(text.size());
  require_sent(MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_LONG_LONG, MPI_SUM, comm_), "agreeing on a checkpoint");
  if (total > std::numeric_limits<int>::max()) {
    throw RunError("checkpoint not written: the ranks' lists of parts take " + std::to_string(total) + " bytes, too many");
  }
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<std::size_t>(rank_ == 0 ? size_ : 0));
  require_sent(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, comm_), "agreeing on a checkpoint");
  std::vector<int> offsets;
  int end = 0;
  for (const int part : lengths) {
    offsets.push_back(end);
    end += part;
  }
  std::string all(static_cast<std::size_t>(end), '\0');
  require_sent(MPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, 0, comm_),
               "agreeing on a checkpoint");
  std::vector<std::string> result;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    result.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
  }
  return result;
}

std::string Ranks::broadcast(std::string text) const {
  int length = static_cast<int>(text.size());
  require_sent(MPI_Bcast(&length, 1, MPI_INT, 0, comm_), "agreeing on a checkpoint");
  text.resize(static_cast<std::size_t>(length));
  require_sent(MPI_Bcast(text.data(), length, MPI_CHAR, 0, comm_), "agreeing on a checkpoint");
  return text;
}

}  // namespace minipipe::core::checkpoint
