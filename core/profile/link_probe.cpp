#include "core/profile/link_probe.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "core/comm/mpi_channel.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/comm/nap.hpp"
#include "core/profile/median.hpp"
#include "core/train/options.hpp"

namespace minipipe::core {

namespace {

constexpr int repetitions = 101;
constexpr double pause_s = 1e-3;  // before a message is sent: its receiver is waiting, as deep asleep as in a run
constexpr int small_floats = 16;

// Works without MPI calls, as a stage does.
void be_busy(double seconds) {
  for (const double end = MPI_Wtime() + seconds; MPI_Wtime() < end;) {
  }
}

void wait_for(MpiReceiveChannel& channel) {
  for (Nap nap; !channel.arrived(0);) nap.idle();
}

void wait_for(MpiSendChannel& channel) {
  for (Nap nap; !channel.sent(0);) nap.idle();
}

// One end of a pair. Its two ends call the same functions in the same order.
class Pair {
 public:
  Pair(MPI_Comm comm, bool lower, int peer, std::int64_t floats)
      : lower_(lower),
        in_("profile_in", 1, floats),
        out_("profile_out", 1, floats),
        receive_(comm, peer, lower ? 1 : 0, in_),
        send_(comm, peer, lower ? 0 : 1, out_) {
    receive_.post(0);
  }

  // One-way seconds when the receiver waits, from round trips.
  double one_way() {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions; ++i) {
      if (lower_) be_busy(pause_s);
      const double begin = MPI_Wtime();
      if (lower_) send();
      take();
      if (lower_) {
        seconds.push_back(0.5 * (MPI_Wtime() - begin - pause_s));
      } else {
        be_busy(pause_s);
        send();
      }
      wait_for(send_);
    }
    return std::max(0.0, median(seconds));
  }

  // Seconds of the upper end to take a message that came while it was busy, and of the lower end to start a send.
  std::array<double, 2> handling() {
    std::vector<double> starting, taking;
    for (int i = 0; i < repetitions; ++i) {
      if (lower_) {
        be_busy(0.25 * pause_s);  // until the other end has begun to be busy and can no longer take the message in passing
        const double begin = MPI_Wtime();
        send_.send(0);
        starting.push_back(MPI_Wtime() - begin);
        wait_for(send_);
        take();
      } else {
        be_busy(pause_s);
        const double begin = MPI_Wtime();
        while (!receive_.arrived(0)) {
        }
        taking.push_back(MPI_Wtime() - begin);
        receive_.post(0);
        send();
        wait_for(send_);
      }
    }
    return {median(starting), median(taking)};
  }

 private:
  void send() { send_.send(0); }
  void take() {
    wait_for(receive_);
    receive_.post(0);
  }

  bool lower_;
  MessageBuffers in_, out_;
  MpiReceiveChannel receive_;
  MpiSendChannel send_;
};

enum Number { send, receive, one_way, latency, pairs, numbers };

}  // namespace

LinkProfile measure_links(const Deck& deck, MPI_Comm comm) {
  int rank = 0;
  int size = 1;
  check(MPI_Comm_rank(comm, &rank), "measuring links");
  check(MPI_Comm_size(comm, &size), "measuring links");
  std::array<double, numbers> sums{};
  for (const int first : {0, 1}) {
    const bool lower = rank >= first && (rank - first) % 2 == 0;
    const int peer = lower ? rank + 1 : rank - 1;
    const bool takes_part = rank >= first && peer < size && peer >= first;
    const Communicator edges = Communicator::duplicate(comm);
    check(MPI_Barrier(comm), "measuring links");
    if (takes_part) {
      Pair large(edges.get(), lower, peer, message_floats(deck));
      large.one_way();  // warms the library up
      const double large_s = large.one_way();
      const auto handled = large.handling();
      sums[send] += handled[0];
      sums[receive] += handled[1];
      sums[one_way] += large_s;
    }
    check(MPI_Barrier(comm), "measuring links");
    const Communicator small_edges = Communicator::duplicate(comm);
    if (takes_part) {
      sums[latency] += Pair(small_edges.get(), lower, peer, small_floats).one_way();
      if (lower) sums[pairs] += 1;
    }
    check(MPI_Barrier(comm), "measuring links");
  }
  check(MPI_Allreduce(MPI_IN_PLACE, sums.data(), numbers, MPI_DOUBLE, MPI_SUM, comm), "measuring links");
  LinkProfile link;
  if (sums[pairs] == 0) return link;
  link.send = sums[send] / sums[pairs];
  link.receive = sums[receive] / sums[pairs];
  link.one_way = sums[one_way] / sums[pairs];
  link.latency = sums[latency] / sums[pairs];
  const double bytes = static_cast<double>(message_floats(deck)) * sizeof(float);
  if (link.one_way > link.latency) link.bytes_per_s = bytes / (link.one_way - link.latency);
  return link;
}

}  // namespace minipipe::core
