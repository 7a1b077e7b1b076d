// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fstream>
#include <sched.h>
#include <signal.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "check.hpp"

namespace check {

// Returns the process id of each rank; 0 for ranks on another machine, which signals do not reach. Collective over all
// ranks.
inline std::vector<int> pids_here() {
  struct Process {
    char machine[64] = {};
    int pid = getpid();
  } own;
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(own.machine, sizeof own.machine);
  std::vector<Process> all(static_cast<std::size_t>(size()));
  CHECK_MPI(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD));
  std::vector<int> pids;
  for (const Process& process : all) pids.push_back(std::string(process.machine) == own.machine ? process.pid : 0);
  return pids;
}

// Returns when all threads of a process are stopped.
inline void await_stop(pid_t pid) {
  for (char message = 'R'; message != 'T'; sched_yield()) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    message = line[line.rfind(')') + 2];
  }
}

// Stops all threads of a process. SIGCONT continues them.
inline void stop(pid_t pid) {
  CHECK_EQ(kill(pid, SIGSTOP), 0);
  await_stop(pid);
}

// Stops a process while this object exists. 0 is no process.
class Stopped {
 public:
  explicit Stopped(pid_t pid) : pid_(pid) {
    if (pid_ != 0) stop(pid_);
  }
  ~Stopped() {
    if (pid_ != 0) CHECK_EQ(kill(pid_, SIGCONT), 0);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  pid_t pid_;
};

}  // namespace check
