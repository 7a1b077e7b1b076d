// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <exception>

#include "tools/common/commands.hpp"

int main(int argc, char** argv) {
  try {
    return farside::tools::run_command_line({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "farside: %s\n", error.what());
    return 1;
  }
}
