#include "core/comm/transport.hpp"

#include <algorithm>

#include "core/comm/mpi_channel.hpp"
#include "core/comm/nccl_transport.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}

  std::unique_ptr<schedules::SendChannel> sender(EdgeEnd end, const MessageBuffers& buffers,
                                                 std::int64_t& sent_bytes) override {
    return std::make_unique<MpiSendChannel>(comm_, end.peer, end.tag, buffers, sent_bytes);
  }
  std::unique_ptr<schedules::ReceiveChannel> receiver(EdgeEnd end, const MessageBuffers& buffers) override {
    return std::make_unique<MpiReceiveChannel>(comm_, end.peer, end.tag, buffers);
  }

 private:
  MPI_Comm comm_;
};

}  // namespace

std::vector<EdgeEnd> joining_order(std::vector<EdgeEnd> ends) {
  std::sort(ends.begin(), ends.end(), [](const EdgeEnd& a, const EdgeEnd& b) { return a.tag < b.tag; });
  return ends;
}

void require_transport(const std::string& name) {
  if (name == "nccl" && !have_nccl) {
    throw InputError(
        "parallel.transport = \"nccl\": this minipipe was built without NCCL; use \"mpi\", or configure with the "
        "cuda preset where nccl.h and libnccl are found");
  }
}

std::unique_ptr<Transport> make_transport(const std::string& name, MPI_Comm comm) {
  require_transport(name);
  if constexpr (have_nccl) {
    if (name == "nccl") return make_nccl_transport(comm);
  }
  return std::make_unique<MpiTransport>(comm);
}

}  // namespace minipipe::core
