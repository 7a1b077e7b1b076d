// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fstream>
#include <sched.h>
#include <signal.h>
#include <string>

#include "check.hpp"

namespace check {

// Stops a process for a while, from outside: it answers nobody.
class Stopped {
 public:
  explicit Stopped(pid_t pid) : pid_(pid) {
    CHECK_EQ(kill(pid_, SIGSTOP), 0);
    for (char letter = 'R'; letter != 'T'; sched_yield()) {
      std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
      std::string line;
      std::getline(stat, line);
      letter = line[line.rfind(')') + 2];
    }
  }
  ~Stopped() { CHECK_EQ(kill(pid_, SIGCONT), 0); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  pid_t pid_;
};

}  // namespace check
