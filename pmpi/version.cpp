// SPDX-License-Identifier: BSD-3-Clause
// The version of this library, for tools that look for it in a process (dlsym(3)), such as `farside doctor`: that of
// farside, and that of the protocol between ranks. Ranks with different protocols make no windows together.
#include <string>

#include <fmt/format.h>

#include "transport/space/agreement.hpp"

extern "C" __attribute__((visibility("default"))) const char* farside_version();

// The text lives as long as the process. Thread safety: any thread.
const char* farside_version() {
  static const auto* const text =
      new std::string(fmt::format("{} (protocol {})", FARSIDE_VERSION, farside::Agreement::kProtocol));
  return text->c_str();
}
