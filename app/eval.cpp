// minipipe eval: the validation loss of a checkpoint, and the next batch with the loss of each token.
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/session.hpp"
#include "app/token_source.hpp"
#include "core/comm/agreement.hpp"
#include "core/comm/mpi_error.hpp"
#include "core/comm/nap.hpp"
#include "core/comm/stop_signal.hpp"
#include "core/deck/rule_list.hpp"
#include "core/deck/rules.hpp"
#include "core/io/batch_dump.hpp"
#include "core/train/checkpointing.hpp"
#include "core/train/evaluation_part.hpp"
#include "core/train/mean_loss.hpp"
#include "core/train/options.hpp"
#include "core/train/pipeline.hpp"
#include "core/train/preflight.hpp"
#include "core/train/replica_options.hpp"
#include "core/train/run_watchdog.hpp"
#include "schedules/error.hpp"

namespace minipipe::app {

namespace {

// The batch of one optimizer update, microbatch by microbatch.
struct Batch {
  std::int64_t rows = 0;  // sequences
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> losses;
};

// Numbers microbatches from `first` on, so that an evaluation can run over the batches of training.
class ShiftedSource : public core::BatchSource {
 public:
  ShiftedSource(core::BatchSource& source, std::int64_t first) : source_(source), first_(first) {}
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    source_.batch(first_ + microbatch, tokens, targets);
  }
  std::int64_t counted_tokens(std::int64_t microbatch) override { return source_.counted_tokens(first_ + microbatch); }

 private:
  core::BatchSource& source_;
  std::int64_t first_;
};

// What any rank was sent stops all of them, between two parts of an evaluation.
class Stop {
 public:
  Stop(MPI_Comm comm, int stages) : comm_(comm), stages_(stages) {}

  // For Pipeline::evaluate of what begins now. Collective when called.
  core::Pipeline::NextPart next_part() {
    return [this, began = MPI_Wtime()](std::int64_t done, std::int64_t left) {
      int stopping = signal_.received() != 0 ? 1 : 0;
      std::int64_t part = core::evaluation_part(done, left, MPI_Wtime() - began, stages_);
      core::check(MPI_Allreduce(MPI_IN_PLACE, &stopping, 1, MPI_INT, MPI_MAX, comm_), "deciding whether to stop");
      core::check(MPI_Bcast(&part, 1, MPI_INT64_T, 0, comm_), "deciding how an evaluation goes on");
      if (stopping == 0) return part;
      stopped_ = true;
      done_ = done;
      all_ = done + left;
      return std::int64_t{0};
    };
  }

  bool stopped() const { return stopped_; }
  std::string text() const {
    return "a signal asked the evaluation to stop: " + std::to_string(done_) + " of " + core::plural(all_, "microbatch") +
           " of a replica were done, and no loss is known; run the same command again";
  }

 private:
  core::StopSignal signal_;
  MPI_Comm comm_;
  int stages_;
  bool stopped_ = false;
  std::int64_t done_ = 0;
  std::int64_t all_ = 0;
};

// A checkpoint is of the model, whatever the grid: where the ranks do not suit the deck's replicas, one replica evaluates. What
// only training does is left out, since rules between it and the grid would refuse grids that can evaluate.
core::Deck for_evaluation(core::Deck deck, int ranks) {
  const core::Deck defaults;
  deck.train.clip = "none";
  deck.parallel.fsdp_reduce = defaults.parallel.fsdp_reduce;
  deck.schedule.replay = "";
  const int data = deck.parallel.data;
  const bool gathers = deck.parallel.mode == "fsdp" || deck.parallel.mode == "sdp";
  const bool fits = ranks % data == 0 && (!gathers || data == 1 || data * core::stages_of(deck, ranks) <= ranks);
  if (fits && (ranks > 1 || data == 1)) return deck;
  deck.train.microbatches *= deck.parallel.data;
  deck.parallel.data = 1;
  deck.parallel.mode = "ddp";
  deck.sdp = {};
  return deck;
}

}  // namespace

int evaluate(const Command& command, core::Watchdog& watchdog) {
  const MPI_Comm comm = MPI_COMM_WORLD;
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  core::Deck deck = for_evaluation(load_deck(command, comm), ranks);
  core::watch_run(watchdog, deck, rank);
  TokenSources sources;
  core::CheckpointState state;
  std::filesystem::path file;
  std::string notes;
  core::agree(comm, [&] {
    core::check_rules(deck, ranks);
    core::check_transport(deck);
    core::check_masks_of_run(deck, core::stages_of(deck, ranks));
    if (deck.emulate.enabled) throw InputError("emulate.enabled = true: an emulated run has no model to evaluate");
    if (!command.dump_batch.empty() && deck.parallel.data > 1) {
      throw InputError("--dump-batch " + command.dump_batch +
                       ": one replica has the whole batch; start it on one rank, or add parallel.data=1 "
                       "train.microbatches=" +
                       std::to_string(deck.train.microbatches * deck.parallel.data) + " (a checkpoint loads under any grid)");
    }
    const auto found = core::find_checkpoint(command.checkpoint, "--checkpoint",
                                             std::filesystem::path(deck.output.directory) / "checkpoints", &notes);
    if (!found) {
      throw InputError("--checkpoint " + command.checkpoint + ": no checkpoint in " + deck.output.directory +
                       "/checkpoints; train first, or name a checkpoint file");
    }
    file = *found;
    state = core::open_checkpoint(
        file, deck, &notes,
        command.dump_batch.empty() ? core::CheckpointUse::evaluate : core::CheckpointUse::evaluate_next_batch);
    sources = open_sources(deck, true);
    notes += fit_evaluation(deck, sources);
  });
  const core::Place place = core::place_of_run(deck, rank, ranks);
  auto edges = core::Communicator::duplicate(comm);
  auto replicas = core::Communicator::split(comm, place.pipeline_rank(), place.replica());
  std::unique_ptr<core::Pipeline> pipeline;
  std::unique_ptr<core::BatchDump> dump;
  Stop stop(comm, place.stages());
  Batch batch;
  batch.rows = deck.train.microbatches * deck.train.microbatch_size;
  core::agree(comm, [&] {
    pipeline = std::make_unique<core::Pipeline>(deck, place, edges.get(), sources.sources(), [] { return MPI_Wtime(); });
  });
  core::agree(comm, [&] { pipeline->join_stages(); });
  core::agree(comm, [&] { pipeline->join_replicas(replicas.get()); });
  core::agree(comm, [&] {
    core::load_checkpoint(file, *pipeline);
    if (!command.dump_batch.empty() && place.has_last_stage()) {
      dump = std::make_unique<core::BatchDump>(command.dump_batch, batch.rows, deck.train.sequence);
    }
  });

  watchdog.beat();
  core::Nap nap;
  const auto poll = [&](bool moved) -> std::optional<std::int64_t> {
    if (moved) {
      nap.reset();
      watchdog.beat();
    } else {
      nap.idle();
    }
    return std::nullopt;
  };
  const auto finish_stopped = [&] {
    if (rank == 0) std::cout << notes << stop.text() << std::endl;
    return 75;
  };
  const auto validation = pipeline->evaluate(*sources.validation, deck.output.evaluation_batches, poll, {}, stop.next_part());
  if (stop.stopped()) return finish_stopped();
  double losses[2] = {core::mean_loss(comm, validation), 0};
  if (!command.dump_batch.empty()) {
    ShiftedSource next(*sources.train, state.microbatches);
    const auto keep = [&](std::int64_t, const std::vector<float>& token_losses) {
      batch.losses.insert(batch.losses.end(), token_losses.begin(), token_losses.end());
    };
    const auto evaluated = pipeline->evaluate(next, core::microbatches_per_update(deck), poll, keep, stop.next_part());
    if (stop.stopped()) return finish_stopped();
    losses[1] = core::mean_loss(comm, evaluated);
    core::agree(comm, [&] {
      if (!dump) return;
      const std::int64_t each = std::int64_t{deck.train.microbatch_size} * deck.train.sequence;
      batch.tokens.resize(batch.losses.size());
      batch.targets.resize(batch.losses.size());
      for (std::int64_t m = 0; m < deck.train.microbatches; ++m)
        next.batch(m, &batch.tokens[m * each], &batch.targets[m * each]);
      dump->write(batch.tokens, batch.targets, batch.losses);
    });
  }
  if (rank == 0) {
    nlohmann::ordered_json result = {{"checkpoint", file.string()}, {"step", state.step}, {"validation_loss", losses[0]}};
    if (!command.dump_batch.empty()) result["batch_loss"] = losses[1];
    std::cout << notes << result.dump() << std::endl;
  }
  return 0;
}

}  // namespace minipipe::app
