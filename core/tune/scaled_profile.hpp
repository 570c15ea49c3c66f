#pragma once

#include "core/tune/profile_file.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::core {

// What to make of a profile; 0: as in the file.
struct ProfileSize {
  int layers = 0;
  double width = 0;
  double sequence = 0;
};

// The profile at another size. The list of layers is repeated, or cut, to `layers`. Times grow with the number of operations,
// as if every size ran at the same rate: with w and t the ratios of widths and sequences, a layer as w^2 t, its attention share
// as w t^2, embedding and head (whose vocabulary stays) as w t, like a message between stages and the activations. Gradients
// and parameters grow as w^2, those of embedding and head as w. The latency of messages stays. InputError naming the file's
// missing key if another width or sequence is asked of a profile that does not say its own.
ProfileFile scaled(const ProfileFile& file, const ProfileSize& size);

// Costs of the stages of a partition in milliseconds, for the simulator of the policies. An update is the exchange of the
// stage's gradients among `replicas`; the optimizer's own time is not in it.
schedules::Costs stage_costs(const ProfileFile& file, const std::vector<int>& partition, int replicas);

}  // namespace minipipe::core
