#pragma once

#include <filesystem>

#include "core/profile/profile.hpp"

namespace minipipe::core {

// The HDF5 file of a profile. Root attributes: format ("minipipe profile"), format_version, version, git_hash, deck, host, cpu,
// execution_space, threads, message_bytes, undetermined. /model: one text attribute per key of the fingerprint, its dot kept.
// /parameters, /activation_bytes: attributes embedding, head and one for each kind of layer that was measured, named as in
// name_of(LayerKind). /ranks/<r> and /mean: groups forward, backward, backward_input, backward_weight, update with the same
// attributes and received, in seconds, and attributes of their own for the other numbers. /link: attributes in seconds and
// bytes per second. Version 1 is read, too: it has transformer layers alone, named block, and no activation_bytes.

// Replaces the file. Throws InputError if it cannot be made, RunError if it cannot be written.
void write_profile(const std::filesystem::path& file, const Profile& profile);

// Throws InputError naming the file and what is wrong with it.
Profile read_profile(const std::filesystem::path& file);

}  // namespace minipipe::core
