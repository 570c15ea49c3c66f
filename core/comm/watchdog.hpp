#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace minipipe::core {

// A thread that ends the job when nothing has moved for too long: a peer is gone, or a schedule waits for ever.
class Watchdog {
 public:
  // `limit_s`: seconds between beats, 0 or less: never expires, no thread. `describe` is called from the watchdog's thread
  // while the main thread may be anywhere: it must only read what is safe to read then (rank, name of the last action).
  // On expiry its text goes to stderr and `on_expire` is called, once; by default abort_job(3).
  Watchdog(double limit_s, std::function<std::string()> describe, std::function<void()> on_expire = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on another limit and text, which counts as a beat.
  void watch_for(double limit_s, std::function<std::string()> describe);

  // Something moved. Cheap enough for every action.
  void beat() { last_ns_.store(now_ns(), std::memory_order_relaxed); }

  // While paused it does not expire (writing a checkpoint, evaluating). Pauses nest; resuming counts as a beat.
  void pause() { paused_.fetch_add(1); }
  void resume() {
    beat();
    paused_.fetch_sub(1);
  }

  class Pause {
   public:
    explicit Pause(Watchdog& watchdog) : watchdog_(watchdog) { watchdog_.pause(); }
    ~Pause() { watchdog_.resume(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Watchdog& watchdog_;
  };

 private:
  static std::int64_t now_ns();
  void start();
  void watch();

  std::mutex mutex_;
  double limit_s_;                         // under the mutex
  std::function<std::string()> describe_;  // under the mutex
  std::function<void()> on_expire_;
  std::atomic<std::int64_t> last_ns_;
  std::atomic<int> paused_{0};
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace minipipe::core
