#include "core/train/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace minipipe::core {

namespace {
std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", static_cast<long long>(whole / 3600),
                static_cast<long long>(whole / 60 % 60), static_cast<long long>(whole % 60));
  return text;
}
}  // namespace

Progress::Progress(const Deck& deck, std::int64_t first_update, std::int64_t tokens_per_update)
    : name_(deck.schedule.name),
      loss_label_(deck.emulate.enabled     ? ""
                  : deck.parallel.data > 1 ? "loss of replica 0 "
                                           : "loss "),
      steps_(deck.run.steps),
      first_(first_update),
      interval_(deck.output.log_interval),
      tokens_per_update_(tokens_per_update) {
  std::string style = deck.output.progress;
  // Launchers give ranks a terminal of their own whatever theirs is, so a launched run draws a bar only when told to.
  if (style == "auto") {
    const bool launched = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_RANK") != nullptr ||
                          std::getenv("PMIX_RANK") != nullptr;
    style = !launched && isatty(STDOUT_FILENO) ? "bar" : "lines";
  }
  style_ = style == "none" ? Style::none : style == "bar" ? Style::bar : Style::lines;
}

void Progress::update(std::int64_t step, double loss, double elapsed_s) {
  if (style_ == Style::none) return;
  const double done = static_cast<double>(step - first_);
  const double tokens_per_s = done * static_cast<double>(tokens_per_update_) / std::max(1e-9, elapsed_s);
  const double left_s = elapsed_s / done * static_cast<double>(steps_ - step);
  if (style_ == Style::bar) {
    constexpr double redraw_s = 0.2;
    if (elapsed_s - drawn_at_ < redraw_s && step != steps_) return;
    drawn_at_ = elapsed_s;
    draw_bar(step, loss, tokens_per_s, left_s);
  } else if ((interval_ > 0 && step % interval_ == 0) || step == steps_) {
    std::printf("%s step %lld/%lld %s%.0f tokens/s, %s left\n", name_.c_str(), static_cast<long long>(step),
                static_cast<long long>(steps_), loss_text(loss).c_str(), tokens_per_s, duration(left_s).c_str());
    std::fflush(stdout);
  }
}

std::string Progress::loss_text(double loss) const {
  if (loss_label_.empty()) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.4f ", loss);
  return loss_label_ + text;
}

void Progress::draw_bar(std::int64_t step, double loss, double tokens_per_s, double left_s) {
  constexpr int width = 30;
  const int filled = static_cast<int>(width * step / std::max<std::int64_t>(1, steps_));
  std::printf("\r\033[K%-5s [%s%s] %lld/%lld %s%.0f tokens/s, %s left", name_.c_str(), std::string(filled, '#').c_str(),
              std::string(width - filled, '.').c_str(), static_cast<long long>(step), static_cast<long long>(steps_),
              loss_text(loss).c_str(), tokens_per_s, duration(left_s).c_str());
  std::fflush(stdout);
  bar_open_ = true;
}

void Progress::validation(std::int64_t step, double loss) {
  if (style_ != Style::none) line(name_ + " step " + std::to_string(step) + " validation loss " + std::to_string(loss));
}

void Progress::line(const std::string& text) {
  finish();
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void Progress::finish() {
  if (bar_open_) std::printf("\n");
  bar_open_ = false;
}

}  // namespace minipipe::core
