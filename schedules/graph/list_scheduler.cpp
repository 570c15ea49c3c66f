#include "schedules/graph/list_scheduler.hpp"

#include <algorithm>
#include <functional>
#include <sstream>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {
constexpr double kNever = std::numeric_limits<double>::infinity();
std::size_t index(int i) { return static_cast<std::size_t>(i); }
}  // namespace

std::vector<double> least_units(const UpdateGraph& graph) {
  std::vector<double> units(index(graph.placement.ranks), 0);
  for (int s = 0; s < graph.placement.stages(); ++s) units[index(graph.placement.rank_of(s))] += graph.stages[index(s)].units;
  return units;
}

void check_cap(const UpdateGraph& graph, double cap) {
  const std::vector<double> units = least_units(graph);
  const auto worst = std::max_element(units.begin(), units.end());
  if (*worst <= cap) return;
  const int rank = static_cast<int>(worst - units.begin());
  int largest = -1;
  for (const int s : graph.placement.stages_of(rank)) {
    if (largest < 0 || graph.stages[index(s)].units > graph.stages[index(largest)].units) largest = s;
  }
  std::ostringstream text;
  text << "memory cap " << cap << ": device " << rank << " needs " << *worst << " units for one microbatch, " << *worst - cap
       << " more than the cap; its largest stage is " << largest << " with " << graph.stages[index(largest)].units
       << "; raise the cap or use more devices";
  throw InputError(text.str());
}

void ListScheduler::reset() {
  const UpdateGraph& graph = *graph_;
  m_ = index(graph.microbatches);
  backwards_begun_ = false;
  devices_.resize(index(graph.placement.ranks));
  for (Device& device : devices_) {
    device.stages.clear();
    device.free_at = 0;
    device.last_start = -1;
    device.started = false;
    device.shared = device.reserved = 0;
  }
  wakes_.clear();
  for (std::size_t d = 0; d < devices_.size(); ++d) wake_at(d, 0);
  const std::size_t stages = graph.stages.size();
  for (std::size_t s = 0; s < stages; ++s) {
    Device& device = devices_[index(graph.placement.rank_of_stage[s])];
    device.stages.push_back(static_cast<int>(s));
    device.reserved += graph.stages[s].units;
  }
  forwards_.assign(stages, 0);
  backwards_.assign(stages, 0);
  weights_.assign(stages, 0);
  forward_end_.assign(stages * m_, kNever);
  gradient_end_.assign(stages * m_, kNever);
}

void ListScheduler::wake_at(std::size_t d, double time) {
  devices_[d].wake = time;
  if (time == kNever) return;
  wakes_.emplace_back(time, d);
  std::push_heap(wakes_.begin(), wakes_.end(), std::greater<>());
}

// The device that wakes first; taken from the heap.
std::size_t ListScheduler::next_awake() {
  while (!wakes_.empty()) {
    std::pop_heap(wakes_.begin(), wakes_.end(), std::greater<>());
    const auto [time, d] = wakes_.back();
    wakes_.pop_back();
    if (devices_[d].wake == time) return d;
  }
  throw RunError("list scheduler: nothing can start; this must not happen");
}

int ListScheduler::number(Type type, int stage) const {
  const std::size_t s = index(stage);
  return type == Type::forward ? forwards_[s] : type == Type::backward ? backwards_[s] : weights_[s];
}

bool ListScheduler::admitted(const Device& device, int stage) const {
  const std::size_t s = index(stage);
  if (forwards_[s] == weights_[s]) return true;
  return device.shared + graph_->stages[s].units <= rules_.cap - device.reserved;
}

// When the next workload of this type and stage can start, as far as its producer has begun.
ListScheduler::Head ListScheduler::head(const Device& device, Type type, int stage, double now) const {
  const std::size_t s = index(stage);
  const int k = number(type, stage);
  if (k >= graph_->microbatches) return {};
  if (type == Type::weight) {
    if (k >= backwards_[s]) return {};
    return {gradient_end_[s * m_ + index(k)], false};
  }
  int producer_stage = type == Type::forward ? stage - 1 : stage + 1;
  Kind producer = type == Type::forward ? Kind::forward : rules_.whole_backward ? Kind::backward : Kind::backward_input;
  double end = 0;
  if (type == Type::forward) {
    if (!admitted(device, stage)) return {};
    if (stage == 0) return {0, false};
    end = forward_end_[(s - 1) * m_ + index(k)];
  } else {
    if (k >= forwards_[s]) return {};
    if (s + 1 == graph_->stages.size()) return {forward_end_[s * m_ + index(k)], false};
    end = gradient_end_[(s + 1) * m_ + index(k)];
  }
  const int other = graph_->placement.rank_of(producer_stage);
  if (other == graph_->placement.rank_of(stage)) return {end, false};
  Head result{end + graph_->link, false};
  if (rules_.defer && backwards_begun_ && device.started && device.free_at == now && result.ready <= now) {
    const Device& sender = devices_[index(other)];
    result.deferred = sender.started && sender.last == Action{producer, producer_stage, k} && end > device.last_start;
  }
  return result;
}

// True if `stage` comes before `than` among ready workloads of a type.
bool ListScheduler::better(Type type, int stage, int than) const {
  if (than < 0) return true;
  if (type == Type::backward || (type == Type::forward && rules_.deep_forward)) return stage > than;
  const int a = number(type, stage);
  const int b = number(type, than);
  return a != b ? a < b : stage < than;
}

double ListScheduler::next_arrival(const Device& device, double now) const {
  double next = kNever;
  for (const int s : device.stages) {
    for (const Type type : {Type::forward, Type::backward}) {
      const double ready = head(device, type, s, now).ready;
      if (ready > now) next = std::min(next, ready);
    }
  }
  return next;
}

bool ListScheduler::choose(const Device& device, double now, Type* type, int* stage) const {
  const bool was_backward = device.started && (device.last.kind == Kind::backward_input || device.last.kind == Kind::backward);
  Type order[3] = {Type::backward, Type::forward, Type::weight};
  if (rules_.alternate && was_backward) std::swap(order[0], order[1]);
  int put_off = -1;
  Type put_off_type = Type::backward;
  for (const Type candidate : order) {
    int best = -1;
    int best_deferred = -1;
    for (const int s : device.stages) {
      const Head found = head(device, candidate, s, now);
      if (found.ready > now) continue;
      int& target = found.deferred ? best_deferred : best;
      if (better(candidate, s, target)) target = s;
    }
    if (best >= 0) {
      *type = candidate;
      *stage = best;
      if (candidate != Type::weight || rules_.hold <= 0) return true;
      if (put_off >= 0) break;
      return next_arrival(device, now) - now >= rules_.hold * graph_->stages[index(best)].backward_weight;
    }
    if (best_deferred >= 0 && put_off < 0) {
      put_off = best_deferred;
      put_off_type = candidate;
    }
  }
  if (put_off < 0) return false;
  *type = put_off_type;
  *stage = put_off;
  return true;
}

void ListScheduler::start(std::size_t d, Type type, int stage, double now, Plan* order) {
  Device& device = devices_[d];
  const std::size_t s = index(stage);
  const int k = number(type, stage);
  Kind kind = Kind::backward_weight;
  const double units = graph_->stages[s].units;
  if (type == Type::forward) {
    kind = Kind::forward;
    if (forwards_[s] != weights_[s]) device.shared += units;
    ++forwards_[s];
  } else if (type == Type::backward) {
    kind = rules_.whole_backward ? Kind::backward : Kind::backward_input;
    ++backwards_[s];
    backwards_begun_ = true;
  }
  device.free_at = now + graph_->duration(kind, stage);
  if (type == Type::forward) forward_end_[s * m_ + index(k)] = device.free_at;
  if (type == Type::backward) gradient_end_[s * m_ + index(k)] = device.free_at;
  if (kind == Kind::backward || kind == Kind::backward_weight) {
    ++weights_[s];
    if (forwards_[s] != weights_[s]) device.shared -= units;
  }
  wake_at(d, device.free_at);
  if (type != Type::weight) {
    const int to = type == Type::forward ? stage + 1 : stage - 1;
    if (to >= 0 && to < graph_->placement.stages()) {
      const std::size_t receiver = index(graph_->placement.rank_of(to));
      const double arrival = device.free_at + (receiver == d ? 0 : graph_->link);
      const double time = std::max(arrival, devices_[receiver].free_at);
      if (time < devices_[receiver].wake) wake_at(receiver, time);
    }
  }
  device.last_start = now;
  device.last = {kind, stage, k};
  device.started = true;
  if (order != nullptr) order->ranks[d].push_back(device.last);
}

double ListScheduler::run(const UpdateGraph& graph, const ListRules& rules, Plan* order) {
  graph_ = &graph;
  rules_ = rules;
  check_cap(graph, rules.cap);
  reset();
  if (order != nullptr) order->ranks.assign(devices_.size(), {});
  const std::size_t total = graph.stages.size() * m_ * (rules.whole_backward ? 2 : 3);
  std::size_t begun = 0;
  double makespan = 0;
  for (;;) {
    // A device is looked at when it becomes free or when something arrives, not at every event.
    const std::size_t d = next_awake();
    const double now = devices_[d].wake;
    Type type = Type::forward;
    int stage = -1;
    if (!choose(devices_[d], now, &type, &stage)) {
      wake_at(d, next_arrival(devices_[d], now));
      continue;
    }
    start(d, type, stage, now, order);
    makespan = std::max(makespan, devices_[d].free_at);
    if (++begun == total) return makespan;
  }
}

}  // namespace minipipe::schedules
