// SPDX-License-Identifier: BSD-3-Clause
// Messages for the user: one line on stderr, in lower case, that says what was tried, on what, and the exact cause. One
// write(2) prints the line, so that lines of several ranks do not mix. Thread safety: any.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "transport/base/state.hpp"

namespace farside {

// Returns the text with '?' for each control character (C0, DEL, and C1 in UTF-8): names from a program or a file must
// neither command a terminal nor look like further lines.
std::string printable(std::string_view text);

class Log {
 public:
  static void set_level(LogLevel level) { this_process.log_level.store(level, std::memory_order_relaxed); }
  // The rank that begins each line (-1: none).
  static void set_rank(int rank) { this_process.log_rank.store(rank, std::memory_order_relaxed); }
  static bool enabled(LogLevel level) { return level <= this_process.log_level.load(std::memory_order_relaxed); }
  static void write(LogLevel level, std::string_view text);
  // Writes the parts as they are. Allocates nothing.
  static void write_parts(std::initializer_list<std::string_view> parts);
  // Whether the process asks for the first time, with this text: for what it logs once.
  static bool is_new(std::string text);
};

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (Log::enabled(level)) Log::write(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace farside
