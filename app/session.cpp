#include "app/session.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/comm/agreement.hpp"
#include "core/deck/parse.hpp"
#include "core/deck/print.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::app {

namespace {
// No deck is this long; a device such as /dev/zero has no end.
constexpr std::size_t most_bytes = std::size_t{256} << 20;

std::string read_text(const std::string& path) {
  const std::string remedy = "; give the path of a TOML deck, such as inputs/verify/verify.toml";
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw InputError("deck " + path + ": is a folder" + remedy);
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  if (!stream) throw InputError("deck " + path + ": cannot be read" + remedy);
  std::vector<char> part(std::size_t{1} << 16);
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > most_bytes) throw InputError("deck " + path + ": is longer than 256 MiB" + remedy);
  }
  if (stream.bad()) throw InputError("deck " + path + ": cannot be read" + remedy);
  if (text.empty()) throw InputError("deck " + path + ": is empty" + remedy);
  return text;
}
}  // namespace

core::SweepDeck load_sweep(const Command& command, MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::string text;
  core::agree(comm, [&] {
    if (rank == 0) text = read_text(command.deck);
  });
  core::broadcast_text(comm, text, 0);
  core::SweepDeck deck;
  core::agree(comm, [&] { deck = core::read_sweep_deck(text, command.deck, command.overrides); });
  return deck;
}

core::Deck load_deck(const Command& command, MPI_Comm comm) {
  const core::SweepDeck file = load_sweep(command, comm);
  core::Deck deck = file.deck;
  core::agree(comm, [&] {
    if (command.case_number >= 0) {
      deck = core::case_of(file, command.case_number);
    } else if (!file.sweep.empty() && command.verb == Command::Verb::train && !command.print_deck) {
      throw InputError("deck " + command.deck + " sweeps over " + std::to_string(file.sweep.cases()) +
                       " cases; choose one with --case K, or run all of them with jobs/sweep.sh");
    }
  });
  const bool same = core::same_on_all(comm, core::deck_hash(deck));
  core::agree(comm, [&] {
    if (!same) {
      throw InputError("deck " + command.deck +
                       ": ranks resolve it to different settings; start all ranks with the same command line");
    }
  });
  return core::effective_deck(deck);
}

bool mentions(const Command& command, const std::string& word, MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  int found = 0;
  if (rank == 0) {
    std::string text;
    try {
      text = read_text(command.deck);
    } catch (const InputError&) {
      // Told when the deck is loaded.
    }
    for (const std::string& override : command.overrides) text += '\n' + override;
    found = text.find(word) != std::string::npos ? 1 : 0;
  }
  MPI_Bcast(&found, 1, MPI_INT, 0, comm);
  return found != 0;
}

}  // namespace minipipe::app
