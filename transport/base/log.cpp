// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/log.hpp"

#include <unistd.h>

namespace farside {

void Log::write(LogLevel level, std::string_view text) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = rank_.load(std::memory_order_relaxed);
  const std::string who = rank < 0 ? std::string("farside") : fmt::format("farside[{}]", rank);
  const std::string line = fmt::format("{}: {}: {}\n", who, kNames[static_cast<int>(level)], text);
  // Ignores errors: there is no other place for the message.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace farside
