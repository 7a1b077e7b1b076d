// SPDX-License-Identifier: BSD-3-Clause
// Tries something in a process of its own, which may crash, hang, or print what it likes.
#pragma once

#include <functional>
#include <string>
#include <sys/types.h>

namespace farside::tools {

struct Attempt {
  bool answered = false;
  std::string answer;  // what the function returned
  std::string end;     // if it did not answer: "ended by signal 11", "no answer for 20 s"
};

// `task` runs in a child of this process, which must have one thread only; the child's outputs go nowhere.
// When this returns the child is gone.
Attempt attempt(const std::function<std::string()>& task, double seconds = 20);

}  // namespace farside::tools
