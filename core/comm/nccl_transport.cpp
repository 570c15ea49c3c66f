#include "core/comm/nccl_transport.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include <algorithm>

#include "core/comm/agreement.hpp"
#include "core/comm/nccl_edge.hpp"

namespace minipipe::core {

namespace {

class NcclSendChannel : public schedules::SendChannel {
 public:
  NcclSendChannel(std::shared_ptr<NcclEdge> edge, const MessageBuffers& buffers, std::int64_t& sent_bytes)
      : buffers_(buffers), edge_(std::move(edge)), sent_bytes_(sent_bytes) {}
  int slots() const override { return buffers_.slots(); }
  void send(int slot) override {
    edge_->start(slot, buffers_.device().data() + slot * buffers_.elements(), static_cast<std::size_t>(buffers_.elements()));
    sent_bytes_ += buffers_.elements() * static_cast<std::int64_t>(sizeof(float));
  }
  bool sent(int slot) override { return edge_->done(slot); }

 private:
  MessageBuffers buffers_;  // outlives the edge's operations: declared first
  std::shared_ptr<NcclEdge> edge_;
  std::int64_t& sent_bytes_;
};

class NcclReceiveChannel : public schedules::ReceiveChannel {
 public:
  NcclReceiveChannel(std::shared_ptr<NcclEdge> edge, const MessageBuffers& buffers)
      : buffers_(buffers), edge_(std::move(edge)), posted_(static_cast<std::size_t>(buffers.slots()), false) {}
  int slots() const override { return buffers_.slots(); }
  void post(int slot) override {
    edge_->start(slot, buffers_.device().data() + slot * buffers_.elements(), static_cast<std::size_t>(buffers_.elements()));
    posted_.at(static_cast<std::size_t>(slot)) = true;
  }
  // An event that was never recorded counts as done, so a slot must have been posted.
  bool arrived(int slot) override { return posted_.at(static_cast<std::size_t>(slot)) && edge_->done(slot); }

 private:
  MessageBuffers buffers_;
  std::shared_ptr<NcclEdge> edge_;
  std::vector<bool> posted_;
};

class NcclTransport : public Transport {
 public:
  explicit NcclTransport(MPI_Comm comm) : comm_(comm) {}

  std::unique_ptr<schedules::SendChannel> sender(EdgeEnd end, const MessageBuffers& buffers,
                                                 std::int64_t& sent_bytes) override {
    return std::make_unique<NcclSendChannel>(add(end, NcclEdge::Role::sender, buffers), buffers, sent_bytes);
  }
  std::unique_ptr<schedules::ReceiveChannel> receiver(EdgeEnd end, const MessageBuffers& buffers) override {
    return std::make_unique<NcclReceiveChannel>(add(end, NcclEdge::Role::receiver, buffers), buffers);
  }

  void join() override {
    // All names before the first connection: the peers of a rank that cannot make one would wait for it.
    agree(comm_, [&] {
      for (const auto& edge : edges_) edge->make_name();
    });
    std::vector<EdgeEnd> ends;
    for (const auto& edge : edges_) ends.push_back(edge->end());
    for (const EdgeEnd& end : joining_order(ends)) {
      (*std::find_if(edges_.begin(), edges_.end(), [&](const auto& edge) { return edge->end() == end; }))->join(comm_);
    }
    edges_.clear();
  }

 private:
  std::shared_ptr<NcclEdge> add(EdgeEnd end, NcclEdge::Role role, const MessageBuffers& buffers) {
    edges_.push_back(std::make_shared<NcclEdge>(end, role, buffers.slots()));
    return edges_.back();
  }

  MPI_Comm comm_;
  std::vector<std::shared_ptr<NcclEdge>> edges_;  // that are not connected yet
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(MPI_Comm comm) { return std::make_unique<NcclTransport>(comm); }

}  // namespace minipipe::core

#endif
