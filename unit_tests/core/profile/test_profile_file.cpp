#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "core/io/hdf5.hpp"
#include "core/profile/profile_file.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/profile/example.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ProfileFile : public ::testing::Test {
 protected:
  ProfileFile() {
    folder_ = std::filesystem::temp_directory_path() /
              ("minipipe_profile_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~ProfileFile() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "profile.h5"; }

  template <class Work>
  static std::string input_error(Work&& work) {
    try {
      work();
    } catch (const InputError& error) {
      return error.what();
    }
    return "no InputError";
  }

  std::filesystem::path folder_;
};

TEST_F(ProfileFile, RoundTrip) {
  const Profile before = example_profile(Deck());
  write_profile(path(), before);
  const Profile after = read_profile(path());
  EXPECT_EQ(after.model, before.model);
  EXPECT_EQ(after.machine.hosts, "alpha,beta");
  EXPECT_EQ(after.machine.cpu, "some processor");
  EXPECT_EQ(after.machine.execution_space, "OpenMP");
  EXPECT_EQ(after.machine.threads, 3);
  EXPECT_EQ(after.deck, before.deck);
  EXPECT_EQ(after.version, "1.2.3");
  EXPECT_EQ(after.git_hash, "abc");
  EXPECT_EQ(after.message_bytes, 65536);
  EXPECT_EQ(after.undetermined, "forward: embedding + head");
  EXPECT_EQ(after.embedding, (LayerBytes{1000, 8}));
  EXPECT_EQ(after.layers, before.layers);
  EXPECT_EQ(after.head, (LayerBytes{30, 512}));
  ASSERT_EQ(after.ranks.size(), 2U);
  EXPECT_EQ(after.ranks[1].forward.of(LayerKind::transformer), 4e-3);
  EXPECT_EQ(after.ranks[0].forward.received, 0.25e-3);
  EXPECT_EQ(after.ranks[0].backward.embedding, 1e-3);
  EXPECT_EQ(after.ranks[0].backward_input.head, 1e-3);
  EXPECT_EQ(after.ranks[0].backward_weight.of(LayerKind::transformer), 4e-3);
  EXPECT_EQ(after.ranks[0].update.head, 2e-3);
  EXPECT_EQ(after.ranks[0].weight_copy, 1e-9);
  EXPECT_EQ(after.ranks[0].weight_correct, 2e-9);
  EXPECT_EQ(after.ranks[0].message_copy, 1e-5);
  EXPECT_EQ(after.ranks[0].residual, 0.01);
  EXPECT_EQ(after.link.send, 1e-6);
  EXPECT_EQ(after.link.receive, 2e-6);
  EXPECT_EQ(after.link.one_way, 10e-6);
  EXPECT_EQ(after.link.latency, 4e-6);
  EXPECT_EQ(after.link.bytes_per_s, 1e10);
  EXPECT_DOUBLE_EQ(after.mean().forward.of(LayerKind::transformer), 3e-3);
}

TEST_F(ProfileFile, RoundTripOfAHybrid) {
  const Profile before = example_hybrid_profile();
  write_profile(path(), before);
  const Profile after = read_profile(path());
  EXPECT_EQ(after.model, before.model);
  EXPECT_EQ(after.layers, before.layers);
  EXPECT_FALSE(after.has(LayerKind::transformer));
  for (const LayerKind kind : hybrid_kinds) {
    EXPECT_EQ(after.ranks[1].backward_input.of(kind), before.ranks[1].backward_input.of(kind)) << name_of(kind);
    EXPECT_EQ(after.ranks[0].update.of(kind), before.ranks[0].update.of(kind)) << name_of(kind);
  }
  EXPECT_EQ(hdf5::File::open(path(), false).get<double>("/mean/update", "state_space"), 4e-3);
  EXPECT_FALSE(hdf5::File::open(path(), false).has_attribute("/mean/update", "transformer"));
}

// As files were before layers had kinds.
TEST_F(ProfileFile, VersionOneIsRead) {
  const Profile before = example_profile(Deck());
  write_profile(path(), before);
  {
    const hdf5::File file = hdf5::File::open(path(), true);
    file.set("/", "format_version", std::int64_t{1});
    file.set("/parameters", "block", std::int64_t{200});
    for (const std::string rank : {"/ranks/0/", "/ranks/1/"}) {
      for (const std::string name : {"forward", "backward", "backward_input", "backward_weight", "update"}) {
        file.set(rank + name, "block", file.get<double>(rank + name, "transformer") + 1);
      }
    }
  }
  const Profile after = read_profile(path());
  EXPECT_EQ(after.ranks[1].forward.of(LayerKind::transformer), 4e-3 + 1);
  EXPECT_EQ(after.ranks[0].update.of(LayerKind::transformer), 1e-3 + 1);
  EXPECT_EQ(after.embedding.parameters, 1000);
  EXPECT_EQ(after.layers[static_cast<std::size_t>(LayerKind::transformer)], (LayerBytes{200, 0}));
  EXPECT_FALSE(after.has(LayerKind::mlp));
  EXPECT_EQ(after.undetermined, "");
}

TEST_F(ProfileFile, TheMeanIsInTheFile) {
  write_profile(path(), example_profile(Deck()));
  EXPECT_DOUBLE_EQ(hdf5::File::open(path(), false).get<double>("/mean/forward", "transformer"), 3e-3);
  EXPECT_EQ(hdf5::File::open(path(), false).get_text("/", "format"), "minipipe profile");
}

TEST_F(ProfileFile, WhatIsNoProfileIsRefused) {
  EXPECT_THAT(input_error([&] { read_profile(path()); }), AllOf(HasSubstr(path()), HasSubstr("minipipe profile DECK")));
  std::ofstream(path()) << "text";
  EXPECT_THAT(input_error([&] { read_profile(path()); }), HasSubstr(path()));
  hdf5::File::create(path()).close();
  EXPECT_THAT(input_error([&] { read_profile(path()); }), HasSubstr("is not a minipipe profile"));
}

TEST_F(ProfileFile, DamageIsNamed) {
  write_profile(path(), example_profile(Deck()));
  hdf5::File::open(path(), true).set("/ranks/1/update", "head", -1.0);
  EXPECT_THAT(input_error([&] { read_profile(path()); }), AllOf(HasSubstr(path()), HasSubstr("/ranks/1/update head")));
  hdf5::File::open(path(), true).set("/", "format_version", std::int64_t{9});
  EXPECT_THAT(input_error([&] { read_profile(path()); }), HasSubstr("format version 9"));
}

// What the reader of JSON refuses, too.
TEST_F(ProfileFile, CostsBeyondAllBoundsAreNamed) {
  for (const double cost : {std::numeric_limits<double>::infinity(), 1e300, 1.1e6, -1.0}) {
    write_profile(path(), example_profile(Deck()));
    hdf5::File::open(path(), true).set("/ranks/1/backward", "head", cost);
    EXPECT_THAT(input_error([&] { read_profile(path()); }),
                AllOf(HasSubstr(path()), HasSubstr("/ranks/1/backward head = "), HasSubstr(" must be ")));
  }
  write_profile(path(), example_profile(Deck()));
  hdf5::File::open(path(), true).set("/link", "bytes_per_s", std::numeric_limits<double>::infinity());
  EXPECT_THAT(input_error([&] { read_profile(path()); }), HasSubstr("/link bytes_per_s = inf must be finite"));
}

TEST_F(ProfileFile, AFolderThatIsNotThereIsBadInput) {
  EXPECT_THAT(input_error([&] { write_profile(folder_ / "no" / "profile.h5", example_profile(Deck())); }), HasSubstr("--out"));
}

TEST_F(ProfileFile, AnotherModelIsRefusedWithItsKeys) {
  const Deck deck;
  const Profile profile = example_profile(deck);
  Deck other = deck;
  other.model.width *= 2;
  other.train.sequence = 32;
  other.model.dropout = 0.1;
  EXPECT_THAT(input_error([&] { check_model("p.h5", profile, other); }),
              AllOf(HasSubstr("p.h5"), HasSubstr("model.width: 128 in the profile, 256 in the deck"),
                    HasSubstr("train.sequence: 64 in the profile, 32 in the deck"), HasSubstr("model.dropout"),
                    Not(HasSubstr("model.vocab"))));
}

TEST_F(ProfileFile, DepthAndScheduleMayDiffer) {
  const Deck deck;
  const Profile profile = example_profile(deck);
  Deck other = deck;
  other.model.layers = 24;
  other.train.microbatches = 3;
  other.schedule.name = "gpipe";
  EXPECT_NO_THROW(check_model("p.h5", profile, other));
}

TEST_F(ProfileFile, AnotherPatternOfTheSameKindsFits) {
  const Profile profile = example_hybrid_profile();
  Deck other = example_hybrid();
  other.model.pattern = "M-M*M-";
  other.model.layers = 6;
  EXPECT_NO_THROW(check_model("p.h5", profile, other));
  other.model.expert_hidden = 32;
  EXPECT_NO_THROW(check_model("p.h5", profile, other)) << "it has no mixtures of experts";
  other.model.state_size = 7;
  EXPECT_THAT(input_error([&] { check_model("p.h5", profile, other); }), HasSubstr("model.state_size"));
}

TEST_F(ProfileFile, KindsThatWereNotMeasuredAreNamed) {
  Profile profile = example_hybrid_profile();
  profile.layers[static_cast<std::size_t>(LayerKind::attention)] = {};
  EXPECT_THAT(input_error([&] { check_model("p.h5", profile, example_hybrid()); }),
              AllOf(HasSubstr("layers of kind attention: none in the profile, 1 in the deck"), Not(HasSubstr("kind mlp"))));
}

TEST_F(ProfileFile, AnotherMachineIsNamed) {
  const Profile profile = example_profile(Deck());
  EXPECT_EQ(machine_difference("p.h5", profile, profile.machine), "");
  Machine here = profile.machine;
  here.threads = 1;
  EXPECT_EQ(machine_difference("p.h5", profile, here), "");
  here.hosts = "gamma";
  EXPECT_THAT(machine_difference("p.h5", profile, here),
              AllOf(HasSubstr("p.h5"), HasSubstr("host alpha,beta, here gamma"), Not(HasSubstr("processor"))));
  here.cpu = "another";
  EXPECT_THAT(machine_difference("p.h5", profile, here), HasSubstr("processor some processor, here another"));
}

}  // namespace
}  // namespace minipipe::core
