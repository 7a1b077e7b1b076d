// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/job.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>

namespace farside {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// The clocks of two nodes may differ by so much.
constexpr std::int64_t kSlack = 2 * kSecond;

std::int64_t now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

std::string_view variable(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool says(const char* name, int number) { return variable(name) == std::to_string(number); }

// A variable with the name of the launch, and one with the rank. What starts a launcher may have got these variables
// from another launch; then the rank is mostly another.
struct Source {
  const char* name;
  const char* rank;
};
constexpr std::array<Source, 4> kSources = {{
    // Open MPI 4 makes a random key for each mpirun. Its namespace comes from a process id, which recurs.
    {"OMPI_MCA_orte_precondition_transports", "OMPI_COMM_WORLD_RANK"},
    {"PMIX_NAMESPACE", "PMIX_RANK"},  // "slurm.pmix.JOB.STEP", "prterun-HOST-PID@1"
    {"PALS_APID", "PALS_RANKID"},
    {"FLUX_JOB_ID", "FLUX_TASK_RANK"},
}};

// What the launcher says, or nothing.
std::string launch_name(int rank, int ranks) {
  for (const Source& source : kSources) {
    const std::string_view name = variable(source.name);
    if (!name.empty() && says(source.rank, rank)) return std::string(name);
  }
  const std::string_view job = variable("SLURM_JOB_ID"), step = variable("SLURM_STEP_ID");
  // An mpirun in the script of a batch job inherits the variables of a step of one task.
  if (job.empty() || step.empty() || !says("SLURM_PROCID", rank) || !says("SLURM_STEP_NUM_TASKS", ranks)) return {};
  return "slurm." + std::string(job) + '.' + std::string(step);
}

}  // namespace

bool Job::may_be_same_launch(const Job& other) const {
  if (!spawned && !other.spawned) {
    if (ranks != 0 && other.ranks != 0 && ranks != other.ranks) return false;
    if (agreed != 0 && other.agreed != 0) return agreed == other.agreed;
    if (launcher != 0 && other.launcher != 0) return launcher == other.launcher;
  } else if (launcher != 0 && launcher == other.launcher) {
    return true;
  }
  if (started == 0 || other.started == 0) return true;
  return started <= other.written + kSlack && other.started <= written + kSlack;
}

std::uint64_t launch_id(int rank, int ranks) {
  const std::string name = launch_name(rank, ranks);
  if (name.empty()) return 0;
  std::uint64_t value = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : name) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

std::int64_t process_start() {
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  // proc(5): the name of the program, in parentheses, may contain anything. The start is the 20th field behind it, in
  // ticks of CLOCK_BOOTTIME.
  const std::size_t name = line.rfind(')');
  if (name == std::string::npos) return 0;
  std::istringstream fields(line.substr(name + 1));
  std::string field;
  for (int i = 0; i < 20 && fields >> field; ++i) continue;
  std::int64_t ticks = 0;
  if (std::from_chars(field.data(), field.data() + field.size(), ticks).ec != std::errc() || !fields) return 0;
  const std::int64_t per_second = sysconf(_SC_CLK_TCK);
  const std::int64_t age = now(CLOCK_BOOTTIME) - ticks * (kSecond / per_second);
  return time_of_day() - age;
}

std::int64_t time_of_day() { return now(CLOCK_REALTIME); }

}  // namespace farside
