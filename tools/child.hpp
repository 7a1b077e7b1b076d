// SPDX-License-Identifier: BSD-3-Clause
// Runs one program (a launcher with its ranks) to its end, without a shell, and leaves nothing of it behind.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/environment.hpp"

namespace farside::tools {

struct ChildEnd {
  enum class How {
    kExited,       // `code` is the exit status
    kSignalled,    // `code` is the signal
    kSilent,       // wrote no line for too long, and was ended
    kInterrupted,  // this process was told to stop (SIGINT, SIGTERM, SIGHUP), and ended it
    kNotStarted,   // `code` is errno
  };
  How how = How::kNotStarted;
  int code = 0;
  std::string error_output;  // the last part of what it wrote to stderr
};

struct ChildRequest {
  std::vector<std::string> arguments;  // the first is the program, found in PATH if it has no slash
  Environment environment;
  double silence_seconds = 60;                    // end it when no line has come for so long
  std::function<void(std::string_view)> on_line;  // each line of its stdout, without the newline
  std::function<void()> on_tick;                  // several times a second, between lines; may be empty
};

// Call once before run_child: processes that a child leaves behind become children of this process (so that
// run_child can end exactly those), and SIGINT, SIGTERM and SIGHUP end the running child first.
void prepare_for_children();

// The child has its own process group and /dev/null as stdin. When this returns, the child and everything
// that it started is gone. Only one at a time.
ChildEnd run_child(const ChildRequest& request);

// This process becomes the program (found in PATH if it has no slash), with signals and children as they were
// before prepare_for_children. Returns only if that fails: errno.
int become_program(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace farside::tools
