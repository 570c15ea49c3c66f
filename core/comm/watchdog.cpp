#include "core/comm/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <utility>

#include "core/comm/abort_job.hpp"

namespace minipipe::core {

Watchdog::Watchdog(double limit_s, std::function<std::string()> describe, std::function<void()> on_expire)
    : limit_s_(limit_s), describe_(std::move(describe)), on_expire_(std::move(on_expire)), last_ns_(now_ns()) {
  start();
}

// Without a limit there is no thread until there is one.
void Watchdog::start() {
  if (limit_s_ > 0 && !thread_.joinable()) thread_ = std::thread([this] { watch(); });
}

void Watchdog::watch_for(double limit_s, std::function<std::string()> describe) {
  {
    const std::lock_guard lock(mutex_);
    limit_s_ = limit_s;
    describe_ = std::move(describe);
    beat();
  }
  wake_.notify_all();
  start();
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::int64_t Watchdog::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const std::chrono::duration<double> interval(limit_s_ > 0 ? std::min(limit_s_ / 4, 1.0) : 1.0);
    wake_.wait_for(lock, interval);
    if (done_) {
      return;
    }
    const double quiet_s = static_cast<double>(now_ns() - last_ns_.load(std::memory_order_relaxed)) * 1e-9;
    if (limit_s_ <= 0 || paused_.load() > 0 || quiet_s < limit_s_) {
      continue;
    }
    std::ostringstream text;
    text << "minipipe: nothing moved for " << quiet_s << " s (limit " << limit_s_ << " s): " << describe_() << '\n';
    std::fputs(text.str().c_str(), stderr);
    std::fflush(stderr);
    if (!on_expire_) {
      abort_job(3);
    }
    on_expire_();
    return;
  }
}

}  // namespace minipipe::core
