#include "app/profile_costs.hpp"

#include "schedules/error.hpp"

namespace minipipe::app {

bool is_measured(const std::string& profile) { return profile.ends_with(".h5") || profile.ends_with(".hdf5"); }

core::ProfileFile read_costs(const std::string& profile) {
  if (is_measured(profile)) {
    throw InputError("profile " + profile +
                     ": times of this model's layers, to be used with a deck: minipipe simulate DECK "
                     "--profile " +
                     profile);
  }
  if (!profile.ends_with(".json")) {
    throw InputError("profile " + profile + ": is in no known form; give a .json file, or a .h5 file of minipipe profile");
  }
  return core::read_json_profile(profile);
}

}  // namespace minipipe::app
