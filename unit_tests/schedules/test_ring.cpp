#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "schedules/exec/ring.hpp"

namespace minipipe::schedules {
namespace {

// Both ends of an edge whose messages are completed by hand; counts the questions.
class ManualChannel : public SendChannel, public ReceiveChannel {
 public:
  explicit ManualChannel(int slots) : open_(static_cast<std::size_t>(slots), false) {}
  int slots() const override { return static_cast<int>(open_.size()); }
  void send(int slot) override { open(slot); }
  void post(int slot) override { open(slot); }
  bool sent(int slot) override { return ask(slot); }
  bool arrived(int slot) override { return ask(slot); }

  void complete(int slot) { open_[static_cast<std::size_t>(slot)] = false; }
  int take_questions() { return std::exchange(questions_, 0); }

 private:
  void open(int slot) { open_[static_cast<std::size_t>(slot)] = true; }
  bool ask(int slot) {
    ++questions_;
    return !open_[static_cast<std::size_t>(slot)];
  }

  std::vector<bool> open_;
  int questions_ = 0;
};

TEST(ReceiveRing, TakesMessagesInOrderAndAsksForTheNextOnly) {
  ManualChannel channel(3);
  ReceiveRing ring(&channel);
  EXPECT_FALSE(ring.poll());
  EXPECT_EQ(channel.take_questions(), 1);
  EXPECT_FALSE(ring.ready());

  channel.complete(0);
  channel.complete(1);
  EXPECT_TRUE(ring.poll());
  EXPECT_EQ(channel.take_questions(), 3);
  for (const int slot : {0, 1}) {
    ASSERT_TRUE(ring.ready());
    EXPECT_EQ(ring.slot(), slot);
    ring.release();
  }
  EXPECT_FALSE(ring.ready());

  // Around the end of the ring.
  for (const int slot : {2, 0, 1}) channel.complete(slot);
  EXPECT_TRUE(ring.poll());
  EXPECT_EQ(channel.take_questions(), 3) << "all slots are full: there is none to ask for";
  EXPECT_EQ(ring.slot(), 2);
  ring.release();
  EXPECT_EQ(ring.slot(), 0);
  EXPECT_TRUE(ring.ready());
}

TEST(SendRing, FreesSlotsInOrderAndAsksForTheOldestOnly) {
  ManualChannel channel(3);
  SendRing ring(&channel);
  EXPECT_FALSE(ring.poll());
  EXPECT_EQ(channel.take_questions(), 0) << "nothing is under way";
  for (const int slot : {0, 1, 2}) {
    ASSERT_TRUE(ring.room());
    EXPECT_EQ(ring.slot(), slot);
    ring.send();
  }
  EXPECT_FALSE(ring.room());
  EXPECT_EQ(ring.pending(), 3);

  EXPECT_FALSE(ring.poll());
  EXPECT_EQ(channel.take_questions(), 1);
  channel.complete(1);  // before its turn
  EXPECT_FALSE(ring.poll());
  channel.complete(0);
  EXPECT_TRUE(ring.poll());
  EXPECT_EQ(ring.pending(), 1);
  ASSERT_TRUE(ring.room());
  EXPECT_EQ(ring.slot(), 0);
}

}  // namespace
}  // namespace minipipe::schedules
