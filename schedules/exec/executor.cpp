#include "schedules/exec/executor.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <sstream>
#include <utility>

#include "schedules/error.hpp"
#include "schedules/exec/ring.hpp"

namespace minipipe::schedules {

// Times of one advance() are cut at four points: its entry, the start and the end of the action, its return. What lies between
// two calls is waiting, so the purposes add up to the whole segment. Where one thread runs several executors, the work of
// the others is waiting too.
class Executor::Implementation {
 public:
  Implementation(int stage_index, int stages, std::int64_t activation_slots, Stage& stage, StageChannels channels,
                 std::function<double()> clock)
      : stage_(stage),
        clock_(std::move(clock)),
        activation_slots_(activation_slots),
        activation_in_(channels.activation_in),
        activation_out_(channels.activation_out),
        gradient_in_(channels.gradient_in),
        gradient_out_(channels.gradient_out) {
    state_.stage = stage_index;
    state_.stages = stages;
    const bool first = stage_index == 0;
    const bool last = stage_index == stages - 1;
    if (stage_index < 0 || stage_index >= stages || activation_slots < 1 || (channels.activation_in == nullptr) != first ||
        (channels.gradient_out == nullptr) != first || (channels.activation_out == nullptr) != last ||
        (channels.gradient_in == nullptr) != last) {
      throw RunError("executor of stage " + std::to_string(stage_index) + " of " + std::to_string(stages) +
                     ": needs one activation slot or more, and channels to its neighbours only");
    }
  }

  void set_policy(std::unique_ptr<Policy> policy) { policy_ = std::move(policy); }

  void start_at(std::int64_t microbatches, std::int64_t updates) {
    if (!closed_) fail("start_at inside a segment");
    state_.forwards = state_.backwards = state_.weights = microbatches;
    state_.segment_begin = state_.segment_end = microbatches;
    state_.updates = updates;
  }

  void begin_segment(std::int64_t end) {
    if (!policy_) fail("begin_segment without a policy");
    if (!closed_) fail("begin_segment before the last segment is finished");
    if (end < state_.forwards) fail("begin_segment with an end before the microbatches already done");
    if (policy_->keeps_activations() && state_.forwards != state_.weights) {
      fail("begin_segment after forwards without backwards; call start_at first");
    }
    state_.segment_begin = state_.forwards;
    state_.segment_end = end;
    closed_ = false;
    exchanging_ = false;
    looking_since_.reset();
    last_return_ = clock_();
  }

  void lower_segment_end(std::int64_t end) {
    if (end > state_.segment_end) fail("lower_segment_end to a later microbatch, " + std::to_string(end));
    if (end < state_.forwards) fail("lower_segment_end to microbatch " + std::to_string(end) + ", which has been passed");
    state_.segment_end = end;
  }

  bool advance() {
    if (closed_) return false;
    const double entry = clock_();
    (exchanging_ ? seconds_.exchange : seconds_.wait_input) += entry - last_return_;
    const bool moved = poll();
    if (waits_for_replicas()) {
      looking_since_.reset();
      return wait(entry, moved, seconds_.exchange, true);
    }
    const auto kind = std::exchange(chosen_, {});
    if (kind) {
      const double start = clock_();
      seconds_.send += start - entry;
      perform(*kind, start);
      return true;
    }
    const bool done = policy_->finished(state_);
    if (!looking_since_) looking_since_ = entry;
    wait(entry, moved, done ? seconds_.send : seconds_.wait_input, false);
    return close(done) || moved;
  }

  void wait_anew() { looking_since_.reset(); }

  bool finished() const { return closed_; }

  std::string describe() const {
    std::ostringstream text;
    text << "stage " << state_.stage << " of " << state_.stages << ": forwards " << state_.forwards << ", backwards "
         << state_.backwards << ", weight gradients " << state_.weights << ", updates " << state_.updates << ", segment "
         << state_.segment_begin << ".." << state_.segment_end << (closed_ ? " (finished)" : "") << "; activation "
         << state_.forwards << (activation_in_.ready() ? " is there" : " has not arrived") << ", gradient " << state_.backwards
         << (gradient_in_.ready() ? " is there" : " has not arrived") << "; activation slots in use " << live() << " of "
         << activation_slots_ << "; sends pending: " << activation_out_.pending() << " activations, " << gradient_out_.pending()
         << " gradients; " << (exchanging_ ? "waiting for other replicas; " : "") << "last actions:";
    for (const Action& action : last_actions_) text << ' ' << to_text(action);
    return text.str();
  }

  StageState state_;
  StageSeconds seconds_;
  ActionLog log_;
  std::int64_t peak_ = 0;

 private:
  std::int64_t live() const { return state_.forwards - state_.weights; }
  int slot_of(std::int64_t microbatch) const { return static_cast<int>(microbatch % activation_slots_); }

  // Asks the policy, if it has not chosen yet, and the stage. An update whose gradients are not there stays chosen: a policy is
  // not asked again before its choice is done.
  bool waits_for_replicas() {
    if (!stage_.weights_ready()) return true;
    if (!chosen_) chosen_ = policy_->next(state_);
    return chosen_ == Kind::update && !stage_.gradients_ready(state_.updates);
  }

  bool wait(double entry, bool moved, double& purpose, bool exchanging) {
    last_return_ = clock_();
    purpose += last_return_ - entry;
    exchanging_ = exchanging;
    return moved;
  }

  // Tests the messages under way and sets what the policy may see of them.
  bool poll() {
    bool moved = activation_out_.poll();
    moved |= gradient_out_.poll();
    moved |= activation_in_.poll();
    moved |= gradient_in_.poll();
    const bool slot_free = !policy_->keeps_activations() || live() < activation_slots_;
    state_.input_ready = activation_in_.ready() && activation_out_.room() && slot_free;
    state_.gradient_ready = state_.forwards > state_.backwards && gradient_in_.ready() && gradient_out_.room();
    return moved;
  }

  void perform(Kind kind, double start) {
    const std::int64_t version = state_.updates;
    const Action action{kind, state_.stage, number_of(kind)};
    const int slot = kind == Kind::update ? -1 : slot_of(action.microbatch);
    switch (kind) {
      case Kind::forward:
        if (!state_.input_ready) fail("the policy started a forward whose input is not there");
        stage_.forward(action.microbatch, slot, activation_in_.slot(), activation_out_.slot());
        ++state_.forwards;
        break;
      case Kind::backward:
      case Kind::backward_input:
        if (!state_.gradient_ready) fail("the policy started a backward whose gradient is not there");
        if (kind == Kind::backward) {
          stage_.backward(action.microbatch, slot, gradient_in_.slot(), gradient_out_.slot());
          ++state_.weights;
        } else {
          stage_.backward_input(action.microbatch, slot, gradient_in_.slot(), gradient_out_.slot());
        }
        ++state_.backwards;
        break;
      case Kind::backward_weight:
        if (state_.weights >= state_.backwards) fail("the policy started a weight gradient before its input gradient");
        stage_.backward_weight(action.microbatch, slot);
        ++state_.weights;
        break;
      case Kind::update:
        stage_.update(action.microbatch);
        ++state_.updates;
        break;
      default:
        fail("the policy asked for " + std::string(letters(kind)) + ", which is not its to start");
    }
    // Actions without messages, too: what still ran would be counted as the time of the next.
    stage_.complete_output();
    if (policy_->keeps_activations()) peak_ = std::max(peak_, live());
    const double end = clock_();
    (kind == Kind::update ? seconds_.update : seconds_.compute) += end - start;
    record({action, start, end, version, looking_since_ ? start - *looking_since_ : 0});
    looking_since_.reset();
    if (kind == Kind::forward) move_messages(activation_in_, activation_out_);
    if (kind == Kind::backward || kind == Kind::backward_input) move_messages(gradient_in_, gradient_out_);
    last_return_ = clock_();
    seconds_.send += last_return_ - end;
    exchanging_ = false;
  }

  std::int64_t number_of(Kind kind) const {
    switch (kind) {
      case Kind::forward:
        return state_.forwards;
      case Kind::backward_weight:
        return state_.weights;
      case Kind::update:
        return state_.updates;
      default:
        return state_.backwards;
    }
  }

  static void move_messages(ReceiveRing& in, SendRing& out) {
    out.send();
    in.release();
  }

  // Ends the segment if its work is done and every send has completed.
  bool close(bool done) {
    if (!done || activation_out_.pending() + gradient_out_.pending() > 0) return false;
    if (policy_->keeps_activations() && live() > 0) fail("the policy stopped with microbatches in flight");
    closed_ = true;
    record({{Kind::drain, state_.stage, state_.forwards}, last_return_, last_return_, state_.updates});
    return true;
  }

  void record(const LoggedAction& entry) {
    constexpr std::size_t kKept = 8;
    log_.push_back(entry);
    last_actions_.push_back(entry.action);
    if (last_actions_.size() > kKept) last_actions_.pop_front();
  }

  [[noreturn]] void fail(const std::string& reason) const { throw RunError("executor: " + reason + ": " + describe()); }

  Stage& stage_;
  std::function<double()> clock_;
  std::unique_ptr<Policy> policy_;
  std::int64_t activation_slots_;
  ReceiveRing activation_in_;
  SendRing activation_out_;
  ReceiveRing gradient_in_;
  SendRing gradient_out_;
  std::deque<Action> last_actions_;
  double last_return_ = 0;
  bool exchanging_ = false;  // the last advance() waited for replicas
  bool closed_ = true;
  std::optional<double> looking_since_;  // in vain
  std::optional<Kind> chosen_;           // by the policy, not done yet
};

Executor::Executor(int stage_index, int stages, std::int64_t activation_slots, Stage& stage, StageChannels channels,
                   std::function<double()> clock)
    : implementation_(
          std::make_unique<Implementation>(stage_index, stages, activation_slots, stage, channels, std::move(clock))) {}
Executor::~Executor() = default;

void Executor::set_policy(std::unique_ptr<Policy> policy) { implementation_->set_policy(std::move(policy)); }
void Executor::start_at(std::int64_t microbatches, std::int64_t updates) { implementation_->start_at(microbatches, updates); }
void Executor::begin_segment(std::int64_t end) { implementation_->begin_segment(end); }
void Executor::lower_segment_end(std::int64_t end) { implementation_->lower_segment_end(end); }
bool Executor::advance() { return implementation_->advance(); }
void Executor::wait_anew() { implementation_->wait_anew(); }
bool Executor::finished() const { return implementation_->finished(); }
const StageState& Executor::state() const { return implementation_->state_; }
const StageSeconds& Executor::seconds() const { return implementation_->seconds_; }
std::int64_t Executor::peak_in_flight() const { return implementation_->peak_; }
ActionLog Executor::take_log() { return std::exchange(implementation_->log_, {}); }
std::string Executor::describe() const { return implementation_->describe(); }

}  // namespace minipipe::schedules
