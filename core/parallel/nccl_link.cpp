#include "core/parallel/nccl_link.hpp"

#ifdef MINIPIPE_HAVE_NCCL

#include "core/comm/mpi_error.hpp"
#include "core/comm/nccl_stream.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

class NcclLink : public StreamLink {
 public:
  NcclLink(const std::string& name, MPI_Comm replicas, int slots)
      : replicas_(replicas), stream_("NCCL, " + name + " among replicas", slots), space_(stream_.stream()) {}

  // Before the instance ends, which frees memory.
  ~NcclLink() override { stream_.abort(); }

  void join() override {
    int rank = 0;
    int ranks = 1;
    check(MPI_Comm_rank(replicas_, &rank), "MPI_Comm_rank of the replicas");
    check(MPI_Comm_size(replicas_, &ranks), "MPI_Comm_size of the replicas");
    stream_.connect(common_id(rank), ranks, rank);
    meet_everyone(rank, ranks);
  }

  const ExecutionSpace& space() const override { return space_; }
  void follow(const ExecutionSpace& other) override { stream_.follow(other.cuda_stream()); }

  void exchange(const std::vector<StreamMessage>& group) override {
    stream_.begin_group();
    for (const StreamMessage& message : group) {
      const auto floats = static_cast<std::size_t>(message.floats);
      if (message.direction == StreamMessage::Direction::send) {
        stream_.send(message.data, floats, message.peer);
      } else {
        stream_.receive(message.data, floats, message.peer);
      }
    }
    stream_.end_group();
  }

  void mark(int slot) override { stream_.mark(slot); }
  bool reached(int slot) override { return stream_.reached(slot); }

 private:
  // Replica 0's. If it has none, all hear of it: nobody waits for it.
  ncclUniqueId common_id(int rank) {
    struct {
      ncclUniqueId id;
      int made;
    } common{};
    std::string problem = "replica 0 could not make the communicator's name";
    if (rank == 0) {
      try {
        common.id = stream_.make_id();
        common.made = 1;
      } catch (const RunError& error) {
        problem = error.what();
      }
    }
    check(MPI_Bcast(&common, sizeof common, MPI_BYTE, 0, replicas_), "MPI_Bcast of a communicator's name");
    if (common.made == 0) throw RunError(problem);
    return common.id;
  }

  // NCCL connects two ranks at their first message, and then each waits on the host for the other: not while training.
  void meet_everyone(int rank, int ranks) {
    const OwnedVector<float> numbers("minipipe::exchange::first_messages", static_cast<std::size_t>(2 * ranks));
    std::vector<StreamMessage> group;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      group.push_back({StreamMessage::Direction::receive, numbers.data() + peer, 1, peer});
      group.push_back({StreamMessage::Direction::send, numbers.data() + ranks + peer, 1, peer});
    }
    exchange(group);
    stream_.wait("the first messages");
  }

  MPI_Comm replicas_;
  NcclStream stream_;
  ExecutionSpace space_;  // on the stream, which outlives it
};

}  // namespace

std::unique_ptr<StreamLink> make_nccl_link(const std::string& name, MPI_Comm replicas, int slots) {
  return std::make_unique<NcclLink>(name, replicas, slots);
}

}  // namespace minipipe::core

#endif
