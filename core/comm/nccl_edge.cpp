#include "core/comm/nccl_edge.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include <Kokkos_Core.hpp>
#include <string>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

NcclEdge::NcclEdge(EdgeEnd end, Role role, int slots)
    : end_(end),
      role_(role),
      stream_("NCCL edge with rank " + std::to_string(end.peer) + ", tag " + std::to_string(end.tag), slots),
      sends_(slots),
      messages_(static_cast<std::size_t>(slots)) {}

void NcclEdge::make_name() {
  if (role_ == Role::sender) name_ = stream_.make_id();
}

void NcclEdge::join(MPI_Comm comm) {
  if (role_ == Role::sender) {
    check(MPI_Send(&name_, sizeof name_, MPI_BYTE, end_.peer, end_.tag, comm), "MPI_Send of an edge's name");
  } else {
    check(MPI_Recv(&name_, sizeof name_, MPI_BYTE, end_.peer, end_.tag, comm, MPI_STATUS_IGNORE), "MPI_Recv of an edge's name");
  }
  stream_.connect(name_, 2, role_ == Role::sender ? 0 : 1);
  const Kokkos::View<float*, MemorySpace> number("minipipe::comm::first_message", 1);
  if (role_ == Role::sender) {
    stream_.send(number.data(), 1, 1);
    sends_.connect(comm, end_.peer, end_.tag);
  } else {
    stream_.receive(number.data(), 1, 0);
    receives_.connect(comm, end_.peer, end_.tag);
  }
  stream_.wait("the first message");
}

void NcclEdge::start(int slot, float* data, std::size_t floats) {
  if (role_ == Role::receiver) {
    messages_.at(static_cast<std::size_t>(slot)) = {data, floats};
    receives_.post(slot);
    return;
  }
  stream_.send(data, floats, 1);
  stream_.mark(slot);
  sends_.announce(slot);
}

bool NcclEdge::done(int slot) {
  if (role_ == Role::sender) return sends_.told(slot) && stream_.reached(slot);
  while (const auto announced = receives_.take()) {
    const Message& message = messages_[static_cast<std::size_t>(*announced)];
    stream_.receive(message.data, message.floats, 0);
    stream_.mark(*announced);
  }
  return !receives_.waits(slot) && stream_.reached(slot);
}

}  // namespace minipipe::core

#endif
