// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/log.hpp"

#include <unistd.h>

namespace farside {

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool c1 = byte >= 0x80 && byte < 0xa0 && result.ends_with('\xc2');
    if (c1) result.pop_back();
    result += c1 || byte < ' ' || byte == 0x7f ? '?' : c;
  }
  return result;
}

void Log::write(LogLevel level, std::string_view text) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = rank_.load(std::memory_order_relaxed);
  const std::string who = rank < 0 ? std::string("farside") : fmt::format("farside[{}]", rank);
  const std::string line = fmt::format("{}: {}: {}\n", who, kNames[static_cast<int>(level)], printable(text));
  // Ignores errors: there is no other place for the message.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace farside
