// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_driver/progress.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/child.hpp"

namespace farside::tools {
namespace {

void rewrite(const std::string& line) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  // A wrapped line could not be rewritten.
  fmt::print("\r\033[K{}", line.substr(0, known ? size.ws_col - 1U : 79U));
  std::fflush(stdout);
}

}  // namespace

Progress::Progress(int total, bool rewrites) : total_(std::max(total, 1)), rewrites_(rewrites) {}

void Progress::begin(const std::string& what) {
  current_ = what;
  if (rewrites_) rewrite(fmt::format("{} {} ...", bar(), what));
}

void Progress::end(const std::string& what, const std::string& result) {
  done_ = std::min(done_ + 1, total_);
  if (rewrites_) {
    rewrite(fmt::format("{} {}: {}", bar(), what, result));
  } else {
    say(fmt::format("[{:3}%] {}: {}", 100 * done_ / total_, what, result));
  }
}

void Progress::skip() {
  done_ = std::min(done_ + 1, total_);
  ++skipped_;
}

void Progress::tick() {
  if (!rewrites_ || current_.empty()) return;
  static constexpr std::string_view kTurning = "|/-\\";
  turn_ = (turn_ + 1) % kTurning.size();
  rewrite(fmt::format("{} {} {}", bar(), current_, kTurning[turn_]));
}

void Progress::say(const std::string& line) {
  clear();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Progress::clear() {
  if (rewrites_) fmt::print("\r\033[K");
  std::fflush(stdout);
}

std::string Progress::bar() const {
  constexpr int kWidth = 20;
  const int filled = kWidth * done_ / total_;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::string left;
  if (const int timed = done_ - skipped_; timed >= 5) {
    const int seconds = static_cast<int>(elapsed * (total_ - done_) / timed);
    left = fmt::format(" {}:{:02} left", seconds / 60, seconds % 60);
  }
  return fmt::format("[{:#<{}}{:-<{}}] {:3}%{}", "", filled, "", kWidth - filled, 100 * done_ / total_, left);
}

bool stdout_rewrites() {
  const std::string term = variable("TERM");
  return isatty(STDOUT_FILENO) != 0 && !term.empty() && term != "dumb";
}

}  // namespace farside::tools
