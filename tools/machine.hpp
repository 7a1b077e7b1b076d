// SPDX-License-Identifier: BSD-3-Clause
// The names of this machine in results and reports. Thread safety: any thread.
#pragma once

#include <string>

namespace farside::tools {

// "Debian GNU/Linux 12 (bookworm)", by os-release(5); "unknown system" without that file.
std::string system_name();
// The model name in /proc/cpuinfo; "unknown processor" if there is none.
std::string processor_name();

}  // namespace farside::tools
