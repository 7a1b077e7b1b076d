// SPDX-License-Identifier: BSD-3-Clause
// The machine on which the simulation runs, and the job that it runs there: its ranks, each with a copy of the program,
// a process id and a host name.
#pragma once

#include <cstdint>
#include <functional>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/types.h>
#include <vector>

#include "tests/simulation/scheduler.hpp"

namespace simulation {

struct Rank {
  int index = 0;
  int node = 0;
  pid_t pid = 0;
  int status_file = -1;  // a memfd with the contents of /proc/PID/stat
  Thread* main = nullptr;
  int result = -1;                                 // of main()
  int error_output = -1;                           // what it has put in the place of stderr
  Time short_of_memory = 0, short_of_files = 0;    // until when
  enum class End { kNone, kZombie, kGone } end{};  // of a rank that has died: whether it still has a process id
};

struct Job {
  std::vector<Rank> ranks;
  int nodes = 1;
  Rank* of_pid(pid_t pid);
  std::string host_name(int node) const { return "node" + std::to_string(node); }
};
extern Job job;
// Gives the rank its process id and that file.
void begin(Rank& rank);
// As SIGSTOP and SIGCONT do.
void stop(Rank& rank);
void proceed(Rank& rank);
// As SIGKILL does, at any time.
void die(Rank& rank);
// Whether two ranks may have mapped the word.
bool is_shared(const void* word);
// For calls of the running rank that need a descriptor, or memory: whether it has none left (Rank). Sets errno.
bool lacks_files();
bool lacks_memory();
// Adds the run to the totals of all.
void count_run();
inline Rank& this_rank() { return job.ranks[static_cast<std::size_t>(current()->rank)]; }

namespace host {

// The C library's own function of that name, behind the simulation's.
void* find(const char* name);
#define FARSIDE_HOST_CALL(name)                                                 \
  inline constexpr auto name = [](auto... arguments) {                          \
    static auto* const call = reinterpret_cast<decltype(&::name)>(find(#name)); \
    return call(arguments...);                                                  \
  }
FARSIDE_HOST_CALL(mmap);
FARSIDE_HOST_CALL(pthread_create);
FARSIDE_HOST_CALL(sched_yield);

// Prints why, where all threads are if `report`, and the command that repeats the run; ends the process with code 1.
[[noreturn]] void fail(const std::string& why, bool report = false);
extern std::string replay;   // that command
extern std::string program;  // the file of which each rank has a copy

// Ends the process.
[[noreturn]] void leave(int code);

// From now on signals are failures.
void begin_run();

// Makes a descriptor readable, and wakes those who poll.
void signal_descriptor(int fd);

}  // namespace host

}  // namespace simulation
