#include "core/parallel/stream_link.hpp"

#include "core/comm/nccl_transport.hpp"
#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/nccl_link.hpp"

namespace minipipe::core {

ExchangeMemory exchange_memory(const std::string& transport) {
  return have_nccl && transport == "nccl" ? ExchangeMemory::kernels : ExchangeMemory::host;
}

ReplicaStreams make_replica_streams([[maybe_unused]] const std::string& transport, [[maybe_unused]] MPI_Comm replicas) {
  ReplicaStreams streams;
#ifdef MINIPIPE_HAVE_NCCL
  if (transport == "nccl") {
    streams.sums = make_nccl_link("sums", replicas, transfers_in_flight);
    streams.gathers = make_nccl_link("gathers", replicas, transfers_in_flight);
  }
#endif
  return streams;
}

}  // namespace minipipe::core
