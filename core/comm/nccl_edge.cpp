#include "core/comm/nccl_edge.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include <Kokkos_Core.hpp>
#include <string>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

NcclEdge::NcclEdge(EdgeEnd end, Role role, int slots)
    : end_(end),
      role_(role),
      stream_("NCCL edge with rank " + std::to_string(end.peer) + ", tag " + std::to_string(end.tag), slots) {}

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
  start(0, number.data(), 1);
  stream_.wait("the first message");
}

void NcclEdge::start(int slot, float* data, std::size_t floats) {
  if (role_ == Role::sender) {
    stream_.send(data, floats, 1);
  } else {
    stream_.receive(data, floats, 0);
  }
  stream_.mark(slot);
}

}  // namespace minipipe::core

#endif
