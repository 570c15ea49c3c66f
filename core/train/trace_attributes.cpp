#include "core/train/trace_attributes.hpp"

#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <sstream>

#include "core/deck/print.hpp"
#include "core/io/summary.hpp"
#include "core/train/replica_options.hpp"
#include "core/train/trainer.hpp"

namespace minipipe::core {

namespace {

// HDF5 takes no attribute of more than 64 KiB: of many replicas and units the deck, which is there, has to do.
std::string attribute_of_masks(const Deck& deck, int stages) {
  constexpr std::size_t most = 60000;
  std::string text = masks_text(deck, stages);
  if (text.size() > most) text = masks_text(deck, stages, MaskRows::none);
  if (text.size() > most) text = text.substr(0, text.rfind('\n', most) + 1) + "...\n";
  return text;
}

}  // namespace

TraceAttributes trace_attributes(const Deck& deck, const Place& place, const BuildInfo& build, const HostShare& share) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  std::ostringstream kokkos;
  Kokkos::print_configuration(kokkos, false);
  TraceAttributes attributes{{"format", "1"},
                             {"deck", print_deck(deck)},
                             {"version", build.version},
                             {"git_hash", build.git_hash},
                             {"kokkos", std::string("execution space ") + ExecutionSpace::name() + "\n" + kokkos.str()},
                             {"ranks", std::to_string(place.ranks)},
                             {"stages", std::to_string(place.stages())},
                             {"replicas", std::to_string(place.replicas)},
                             {"host", host},
                             {"host_ranks", std::to_string(share.ranks)},
                             {"host_cores", std::to_string(share.cores)}};
  if (deck.parallel.mode == "sdp") attributes["masks"] = attribute_of_masks(deck, place.stages());
  if (deck.case_number >= 0) {
    attributes["case"] = std::to_string(deck.case_number);
    attributes["swept"] = swept_json(deck.swept);
  }
  return attributes;
}

}  // namespace minipipe::core
