#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

#include "core/device_forms/fibers.hpp"

// Teams as on a device, on the host: members with a rank, lanes of each, barriers, team scratch. Kokkos' own host teams have
// as many members as there are cores, at best. It has what the kernels use of Kokkos' interface.
namespace minipipe::core::device_forms {

// What a team's members share.
struct TeamState {
  Fibers* fibers = nullptr;
  int league_rank = 0, league_size = 0, threads = 1, lanes = 1;
  void* scratch[2] = {};
  int scratch_bytes[2] = {};
  struct alignas(16) Partial {
    unsigned char bytes[16];
  };
  Partial partial[Fibers::most];
};

template <class ExecutionSpace>
class Member {
 public:
  using execution_space = ExecutionSpace;
  using scratch_memory_space = Kokkos::ScratchMemorySpace<ExecutionSpace>;

  Member(TeamState& team, int index)
      : team_(&team), index_(index), scratch_(team.scratch[0], team.scratch_bytes[0], team.scratch[1], team.scratch_bytes[1]) {}

  int league_rank() const { return team_->league_rank; }
  int league_size() const { return team_->league_size; }
  int team_rank() const { return index_ / team_->lanes; }
  int team_size() const { return team_->threads; }
  int lane() const { return index_ % team_->lanes; }
  int lanes() const { return team_->lanes; }
  // Each member takes the same pieces in the same order, as on a device.
  const scratch_memory_space& team_shmem() const { return scratch_.set_team_thread_mode(0, 1, 0); }
  const scratch_memory_space& team_scratch(int level) const { return scratch_.set_team_thread_mode(level, 1, 0); }

  void team_barrier() const { team_->fibers->wait(0, team_->threads * team_->lanes); }
  void lanes_barrier() const { team_->fibers->wait(team_rank() * team_->lanes, team_->lanes); }

  // Joins the values of all members, or of the lanes of this thread, in the order of a tree; all get the result.
  template <class Reducer>
  void reduce(const Reducer& reducer, bool whole_team) const {
    using Value = typename Reducer::value_type;
    static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(TeamState::Partial));
    const int first = whole_team ? 0 : team_rank() * team_->lanes;
    const int size = whole_team ? team_->threads * team_->lanes : team_->lanes;
    std::memcpy(team_->partial[index_].bytes, &reducer.reference(), sizeof(Value));
    team_->fibers->wait(first, size);
    Value values[Fibers::most];
    for (int i = 0; i < size; ++i) std::memcpy(&values[i], team_->partial[first + i].bytes, sizeof(Value));
    for (int distance = 1; distance < size; distance *= 2) {
      for (int i = 0; i + distance < size; i += 2 * distance) reducer.join(values[i], values[i + distance]);
    }
    team_->fibers->wait(first, size);
    reducer.reference() = values[0];
  }

 private:
  TeamState* team_;
  int index_;
  scratch_memory_space scratch_;
};

template <class ExecutionSpace>
class TeamPolicy {
 public:
  using execution_policy = TeamPolicy;
  using execution_space = ExecutionSpace;
  using member_type = Member<ExecutionSpace>;
  using index_type = int;
  using work_tag = void;

  // More members than rows of an attention tile, so that some have nothing to do; more would only take time.
  static constexpr int most_threads = 24, most_lanes = 4;

  TeamPolicy(const ExecutionSpace& space, int league, int threads, int lanes = 1)
      : space_(space), league_(league), threads_(std::min(threads, most_threads)), lanes_(std::min(lanes, most_lanes)) {}
  TeamPolicy& set_scratch_size(int level, const Kokkos::Impl::PerTeamValue& bytes) {
    // A block of threads has 48 KiB of a GPU's shared memory, some of which Kokkos uses.
    if (level == 0 && bytes.value + (128 + 2) * sizeof(double) > (48 << 10)) {
      Kokkos::abort("device forms: more scratch of level 0 than a GPU has");
    }
    scratch_bytes_[level] = static_cast<int>(bytes.value);
    return *this;
  }

  const ExecutionSpace& space() const { return space_; }
  int league_size() const { return league_; }
  int team_size() const { return threads_; }
  int lanes() const { return lanes_; }
  int scratch_bytes(int level) const { return scratch_bytes_[level]; }

 private:
  ExecutionSpace space_;
  int league_, threads_, lanes_;
  int scratch_bytes_[2] = {};
};

enum class Over { threads, lanes, threads_and_lanes };

template <Over over, class Index, class Member>
struct Range {
  const Member& member;
  Index count;

  Index first() const {
    if constexpr (over == Over::threads) return member.team_rank();
    if constexpr (over == Over::lanes) return member.lane();
    return member.team_rank() * member.lanes() + member.lane();
  }
  Index step() const {
    if constexpr (over == Over::threads) return member.team_size();
    if constexpr (over == Over::lanes) return member.lanes();
    return member.team_size() * member.lanes();
  }
};

}  // namespace minipipe::core::device_forms

namespace Kokkos {

template <class Index, class Space>
auto TeamThreadRange(const minipipe::core::device_forms::Member<Space>& member, Index count) {
  using namespace minipipe::core::device_forms;
  return Range<Over::threads, Index, Member<Space>>{member, count};
}
template <class Index, class Space>
auto TeamVectorRange(const minipipe::core::device_forms::Member<Space>& member, Index count) {
  using namespace minipipe::core::device_forms;
  return Range<Over::threads_and_lanes, Index, Member<Space>>{member, count};
}
template <class Index, class Space>
auto ThreadVectorRange(const minipipe::core::device_forms::Member<Space>& member, Index count) {
  using namespace minipipe::core::device_forms;
  return Range<Over::lanes, Index, Member<Space>>{member, count};
}

// As on a device: only the lanes of one thread meet at the end of a loop.
template <minipipe::core::device_forms::Over over, class Index, class Member, class Body>
void parallel_for(const minipipe::core::device_forms::Range<over, Index, Member>& range, const Body& body) {
  for (Index i = range.first(); i < range.count; i += range.step()) body(i);
  if constexpr (over == minipipe::core::device_forms::Over::lanes) range.member.lanes_barrier();
}

template <minipipe::core::device_forms::Over over, class Index, class Member, class Body, class Result>
void parallel_reduce(const minipipe::core::device_forms::Range<over, Index, Member>& range, const Body& body, Result&& result) {
  using minipipe::core::device_forms::Over;
  static_assert(over != Over::threads, "lanes of one thread would count the same values");
  if constexpr (is_reducer<std::remove_cvref_t<Result>>::value) {
    result.init(result.reference());
    for (Index i = range.first(); i < range.count; i += range.step()) body(i, result.reference());
    range.member.reduce(result, over == Over::threads_and_lanes);
  } else {
    parallel_reduce(range, body, Sum<std::remove_reference_t<Result>>(result));
  }
}

template <class Space>
struct OneOfTeam {
  const minipipe::core::device_forms::Member<Space>& member;
};
template <class Space>
struct OneOfLanes {
  const minipipe::core::device_forms::Member<Space>& member;
};
template <class Space>
OneOfTeam<Space> PerTeam(const minipipe::core::device_forms::Member<Space>& member) {
  return {member};
}
template <class Space>
OneOfLanes<Space> PerThread(const minipipe::core::device_forms::Member<Space>& member) {
  return {member};
}
template <class Space, class Body>
void single(const OneOfTeam<Space>& one, const Body& body) {
  if (one.member.team_rank() == 0 && one.member.lane() == 0) body();
  one.member.lanes_barrier();
}
template <class Space, class Body>
void single(const OneOfLanes<Space>& one, const Body& body) {
  if (one.member.lane() == 0) body();
  one.member.lanes_barrier();
}

namespace Impl {

// One team after the other. Neighbours run their members in opposite orders; scratch begins as values that are no numbers.
template <class Functor, class ExecutionSpace>
class ParallelFor<Functor, minipipe::core::device_forms::TeamPolicy<ExecutionSpace>, ExecutionSpace> {
  using Policy = minipipe::core::device_forms::TeamPolicy<ExecutionSpace>;

 public:
  ParallelFor(const Functor& functor, const Policy& policy) : functor_(functor), policy_(policy) {}

  void execute() const {
    using namespace minipipe::core::device_forms;
    struct Work {
      const Functor& functor;
      TeamState team;
    } work{functor_, {}};
    TeamState& team = work.team;
    team.fibers = &Fibers::of_this_thread();
    team.threads = policy_.team_size();
    team.lanes = policy_.lanes();
    team.league_size = policy_.league_size();
    std::unique_ptr<unsigned char[]> scratch[2];
    for (team.league_rank = 0; team.league_rank < team.league_size; ++team.league_rank) {
      for (int level = 0; level < 2; ++level) {
        const auto bytes = static_cast<std::size_t>(policy_.scratch_bytes(level));
        if (bytes == 0) continue;
        if (!scratch[level]) scratch[level].reset(new unsigned char[bytes]);
        std::memset(scratch[level].get(), 0xff, bytes);
        team.scratch[level] = scratch[level].get();
        team.scratch_bytes[level] = policy_.scratch_bytes(level);
      }
      const auto body = [](void* argument, int index) {
        Work& w = *static_cast<Work*>(argument);
        w.functor(Member<ExecutionSpace>(w.team, index));
      };
      team.fibers->run(team.threads * team.lanes, team.league_rank % 2 == 1, body, &work);
    }
  }

 private:
  const Functor functor_;
  const Policy policy_;
};

}  // namespace Impl

}  // namespace Kokkos
