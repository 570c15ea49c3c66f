#pragma once

#include <mpi.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/control.hpp"
#include "core/comm/host_share.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/comm/nap.hpp"
#include "core/comm/stop_signal.hpp"
#include "core/comm/watchdog.hpp"
#include "core/deck/deck.hpp"
#include "core/io/output_folder.hpp"
#include "core/io/summary.hpp"
#include "core/io/trace.hpp"
#include "core/train/drains.hpp"
#include "core/train/pipeline.hpp"
#include "core/train/preflight.hpp"
#include "core/train/progress.hpp"
#include "core/train/run_times.hpp"
#include "core/train/segment_report.hpp"
#include "core/train/stop_rule.hpp"
#include "core/train/version_statistics.hpp"
#include "schedules/simulate/message_waits.hpp"

namespace minipipe::core {

// Version, git hash and so on: what every output carries.
struct BuildInfo {
  std::string version;
  std::string git_hash;
};

// A whole training run on all ranks of a communicator: from the resolved deck to traces, checkpoints and summary.
class Trainer {
 public:
  // Collective. The deck is resolved and checked (check_rules). The watchdog hears of everything that moves; it outlives the
  // trainer. Throws InputError or RunError, the same on all ranks.
  Trainer(const Deck& deck, MPI_Comm comm, const Sources& sources, const BuildInfo& build, Watchdog& watchdog);
  ~Trainer();

  // Trains to run.steps or until it is asked to stop. Collective. Returns the exit status: 0 or 75 (stopped early with a
  // checkpoint). Where the run had its last update and its summary before, says so and leaves all files alone: 0. An exception
  // here is this rank's alone: the caller ends the job.
  int run();

 private:
  void set_up(const Sources& sources);
  void take_output();
  void begin_output(std::int64_t fullest_bytes, const HostShare& share);
  bool continues_here() const;
  bool finished_before() const;
  void restore();
  void load_replay();
  std::map<int, std::unique_ptr<schedules::Policy>> policies_for(std::int64_t first_update, std::int64_t end_update) const;

  void train_segment();
  void take_losses();
  void poll_idle(bool moved);
  void report_segment(std::int64_t first_update, double training_s);
  void record_segment(const SegmentReport& report, std::int64_t first_update, double training_s);
  void add_message_waits(const schedules::Log& log, int replica);
  void check_segment(const schedules::Log& log, int replica, std::int64_t first_update);
  void evaluate();
  std::int64_t next_evaluation_part(std::int64_t done, std::int64_t left, double began);
  bool misses_evaluation() const;
  void tell_cut_evaluation() const;
  bool complete() const;
  void write_checkpoint();
  bool stop_decided();
  void wait_for_all();
  void finish();
  Summary summarise();
  PlannedMemory memory_here();
  bool asynchronous_now(std::int64_t update) const;
  double clock() const;
  double lap(double& purpose);

  Deck deck_;
  Communicator comm_;
  Communicator edges_;
  BuildInfo build_;
  Sources sources_;
  Watchdog& watchdog_;
  Place place_;
  Communicator replicas_;  // the ranks that hold the same stages
  Drains drains_;
  double started_ = 0;
  double lap_ = 0;  // clock() at the end of the last lap

  StopSignal signal_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<StopRule> stop_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Progress> progress_;  // where Place::tells_progress
  std::unique_ptr<TraceWriter> trace_;  // rank 0
  OutputFolder folder_;
  std::unique_ptr<FolderLock> lock_;  // of the folder; rank 0
  std::string notes_;                 // what the user is told about a resume
  bool nothing_to_do_ = false;        // all updates were done, and summed up, before this process began
  bool owes_evaluation_ = false;      // of the updates done before this process began
  std::int64_t evaluation_cut_ = 0;  // microbatches that a replica did of an evaluation before a stop cut it short; 0 = not cut
  std::optional<schedules::Plan> replay_;
  Nap nap_;

  std::int64_t update_ = 0;         // done
  std::int64_t first_update_ = 0;   // done before this process began
  std::int64_t logged_before_ = 0;  // microbatches of a replica that the log of actions keeps from before
  double elapsed_before_s_ = 0;
  std::int64_t segment_ = 0;
  std::vector<MicrobatchLoss> losses_;        // of the running segment; last stages' ranks
  std::map<std::int64_t, double> loss_sums_;  // by update: of the losses so far, for updates not reported yet
  std::int64_t losses_reported_ = 0;
  double final_loss_ = Summary::unknown;
  double validation_loss_ = Summary::unknown;

  RankSeconds seconds_;
  // On rank 0 only.
  SteadyPart steady_;
  VersionStatistics versions_;
  std::vector<schedules::MessageWaits> message_waits_;  // by rank
  schedules::Log last_log_;                             // the last segment of the first replica, for the timeline
  std::int64_t training_tokens_ = 0;
};

}  // namespace minipipe::core
