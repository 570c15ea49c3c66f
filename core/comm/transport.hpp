#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/message_buffers.hpp"
#include "schedules/exec/channel.hpp"

namespace minipipe::core {

// One end of a directed edge between two ranks. `tag` names the edge in the whole run (see edge_tag()), `peer` is the rank in
// the transport's communicator.
struct EdgeEnd {
  int peer = 0;
  int tag = 0;
  friend bool operator==(const EdgeEnd&, const EdgeEnd&) = default;
};

// The order in which a rank makes its connections: that of the tags. Every connection waits for its two ranks, and since all
// ranks follow one order of all edges, the lowest edge that is not connected yet can always go on.
std::vector<EdgeEnd> joining_order(std::vector<EdgeEnd> ends);

// How messages travel between ranks. Makes the ends of edges; owns what they share. Outlives its channels.
class Transport {
 public:
  virtual ~Transport() = default;
  // Copies the buffers' Views. Adds the bytes of each message to `sent_bytes`, which must outlive the channel.
  virtual std::unique_ptr<schedules::SendChannel> sender(EdgeEnd end, const MessageBuffers& buffers,
                                                         std::int64_t& sent_bytes) = 0;
  virtual std::unique_ptr<schedules::ReceiveChannel> receiver(EdgeEnd end, const MessageBuffers& buffers) = 0;
  // Once, after all ends were made and before the first message. Collective over all ranks.
  virtual void join() {}
};

// The transports' names in the deck: "mpi", "nccl". Throws InputError if this program was built without it.
// `comm`: all ranks, borrowed.
std::unique_ptr<Transport> make_transport(const std::string& name, MPI_Comm comm);

// Throws as make_transport does, for checks before anything is allocated.
void require_transport(const std::string& name);

}  // namespace minipipe::core
