// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/job.hpp"

#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>

#include <catch2/catch.hpp>

namespace farside::job_test {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// A process of a launch of four ranks that ran from the 100th to the 110th second.
Job job(std::uint64_t agreed = 0, std::uint64_t launcher = 0) {
  return {0, 4, false, agreed, launcher, 100 * kSecond, 110 * kSecond};
}
Job later(Job job) {
  job.started += 50 * kSecond;
  job.written += 50 * kSecond;
  return job;
}
bool together(const Job& a, const Job& b) {
  CHECK(a.may_be_same_launch(b) == b.may_be_same_launch(a));
  return a.may_be_same_launch(b);
}

// Sets variables of launchers, and nothing of this test's own launcher, for its life.
class Launcher {
 public:
  explicit Launcher(std::map<std::string, std::string> variables) {
    for (const char* name : {"OMPI_MCA_orte_precondition_transports", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE",
                             "PMIX_RANK", "PALS_APID", "PALS_RANKID", "FLUX_JOB_ID", "FLUX_TASK_RANK", "SLURM_JOB_ID",
                             "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
};

std::uint64_t id(std::map<std::string, std::string> variables, int rank = 3, int ranks = 4) {
  const Launcher launcher(std::move(variables));
  return launch_id(rank, ranks);
}

}  // namespace

TEST_CASE("what the ranks have agreed on tells launches apart, then the launcher, then the time") {
  CHECK(together(job(7), job(7)));
  CHECK(together(job(7), later(job(7))));
  CHECK_FALSE(together(job(7), job(8)));
  CHECK_FALSE(together(job(7, 1), job(8, 1)));  // two launches in one step
  CHECK(together(job(7, 1), job(7, 2)));
  CHECK(together(job(0, 1), later(job(7, 1))));
  CHECK_FALSE(together(job(0, 1), job(7, 2)));
  CHECK(together(job(), job()));
  CHECK(together(job(7), job(0, 1)));
  CHECK_FALSE(together(job(7), later(job(0, 1))));
  CHECK_FALSE(together(job(), later(job())));
}

TEST_CASE("two clocks may differ by a second, and a time that is not known decides nothing") {
  Job soon = job();
  soon.started = job().written + kSecond;
  soon.written = soon.started + kSecond;
  CHECK(together(job(), soon));
  soon.started += 2 * kSecond;
  CHECK_FALSE(together(job(), soon));
  soon.started = 0;
  CHECK(together(job(), soon));
}

TEST_CASE("launches of different numbers of ranks differ") {
  Job other = job();
  other.ranks = 2;
  CHECK_FALSE(together(job(), other));
  other.ranks = 0;  // unknown
  CHECK(together(job(), other));
}

TEST_CASE("spawned processes are of the launch of the same launcher, or of the same time") {
  Job spawned = job(8, 2);
  spawned.ranks = 2;
  spawned.spawned = true;
  CHECK(together(job(7, 1), spawned));
  CHECK_FALSE(together(job(7, 1), later(spawned)));
  CHECK(together(job(7, 2), later(spawned)));
}

TEST_CASE("the launcher's name of the launch counts if its rank is this rank") {
  CHECK(id({}) == 0);
  const std::uint64_t open_mpi = id({{"OMPI_MCA_orte_precondition_transports", "f1-ec"},
                                     {"OMPI_COMM_WORLD_RANK", "3"},
                                     {"PMIX_NAMESPACE", "99"},
                                     {"PMIX_RANK", "3"}});
  CHECK(open_mpi != 0);
  // A namespace recurs, and so does not count beside a random key.
  CHECK(open_mpi == id({{"OMPI_MCA_orte_precondition_transports", "f1-ec"}, {"OMPI_COMM_WORLD_RANK", "3"}}));
  CHECK(id({{"PMIX_NAMESPACE", "slurm.pmix.5.0"}, {"PMIX_RANK", "3"}}) !=
        id({{"PMIX_NAMESPACE", "slurm.pmix.5.1"}, {"PMIX_RANK", "3"}}));
  CHECK(id({{"PMIX_NAMESPACE", "slurm.pmix.5.0"}, {"PMIX_RANK", "0"}}) == 0);  // of what started the launcher
  CHECK(id({{"PALS_APID", "ab-cd"}, {"PALS_RANKID", "3"}}) != 0);
  CHECK(id({{"FLUX_JOB_ID", "f23"}, {"FLUX_TASK_RANK", "3"}}) != 0);
}

TEST_CASE("a step of Slurm counts if it has this number of tasks") {
  const auto step_of = [](const char* number) {
    return std::map<std::string, std::string>{
        {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", number}, {"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  };
  const auto step = step_of("0");
  CHECK(id(step) != 0);
  CHECK(id(step_of("1")) != id(step));
  CHECK(id(step, 3, 8) == 0);  // mpirun inside the step
  CHECK(id(step, 0, 4) == 0);
}

TEST_CASE("a process knows when it started") {
  const std::int64_t started = process_start(), now = time_of_day();
  CHECK(started <= now);
  CHECK(started > now - 3600 * kSecond);
}

}  // namespace farside::job_test
