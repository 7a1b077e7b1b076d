// SPDX-License-Identifier: BSD-3-Clause
// Runs a task in its own process, which may crash, hang, or print.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

namespace farside::tools {

struct Attempt {
  bool answered = false;
  std::string answer;  // the result of the task
  std::string end;     // if there is no answer: "ended by signal 11", "no answer for 20 s"
};

// Runs `task` in a child of this process, which must have one thread only. The child's output goes to /dev/null, and
// the child has ended at the return.
Attempt attempt(const std::function<std::string()>& task, double seconds = 20);

}  // namespace farside::tools
