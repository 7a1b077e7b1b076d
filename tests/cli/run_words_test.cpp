// SPDX-License-Identifier: BSD-3-Clause
// The words of `farside run`, and the command lines of launchers.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tools/common/commands.hpp"
#include "tools/common/runtime.hpp"
#include "tools/common/text.hpp"

namespace farside::run_words_test {

using namespace farside::tools;

namespace {

using Words = std::vector<std::string>;

const OptionValues kOwn{{"--set", 1}, {"--launcher", 1}, {"--dry-run", 0}, {"--help", 0}};

// "OPTIONS | PROGRAM", or the error.
std::string split(const std::string& line) {
  const Result<RunWords> result = split_run_words(shell_words(line), kOwn);
  if (!result) return result.error().text;
  return shell_line(result.value().options) + " | " + shell_line(result.value().program);
}

}  // namespace

TEST_CASE("the program is the first word that is neither an option nor an option's value") {
  CHECK(split("./a b --dry-run") == " | ./a b --dry-run");
  CHECK(split("-n 2 ./a") == "-n 2 | ./a");
  CHECK(split("-np 2 --set A=1 --set=B=2 ./a -n 3") == "-np 2 --set A=1 --set=B=2 | ./a -n 3");
  CHECK(split("--dry-run ./a -- b") == "--dry-run | ./a -- b");
  CHECK(split("--oversubscribe --mca btl self -genv A 1 --bind-to none ./a") ==
        "--oversubscribe --mca btl self -genv A 1 --bind-to none | ./a");
  CHECK(split("--launcher srun --mpi=pmix ./a") == "--launcher srun --mpi=pmix | ./a");
}

TEST_CASE("the program stands behind --") {
  CHECK(split("-n 2 -- ./a -- b") == "-n 2 | ./a -- b");
  CHECK(split("--unknown value -- ./a") == "--unknown value | ./a");
  CHECK(split("--unknown value other -- --dry-run") == "--unknown value other | --dry-run");
  CHECK(split("--map-by node -n 2 --") == "--map-by node -n 2 | ");
}

TEST_CASE("a word behind an unknown option may be its value: -- is needed") {
  CHECK(split("-n 2 --unknown ./a b") ==
        "./a may be the program, or the value of --unknown: put -- in front of the program");
  CHECK(split("--unknown --dry-run ./a") == "--unknown --dry-run | ./a");
  CHECK(split("--unknown=1 ./a") == "--unknown=1 | ./a");
  CHECK(split("--- ./a").find("may be the program") != std::string::npos);
}

TEST_CASE("a command line may have no program") {
  CHECK(split("") == " | ");
  CHECK(split("-n 2") == "-n 2 | ");
  CHECK(split("-n") == "-n | ");
  CHECK(split("--unknown") == "--unknown | ");
}

TEST_CASE("the number of ranks is taken out of a launcher's options") {
  Words options{"-N", "2", "-n", "4", "--label", "-np", "8"};
  CHECK(take_ranks(options) == "8");
  CHECK(options == Words{"-N", "2", "--label"});
  CHECK(take_ranks(options).empty());
  options = {"-n"};
  CHECK(take_ranks(options).empty());
}

TEST_CASE("a launcher that the user names gets the variables by env") {
  Launch launch;
  launch.ranks = 3;
  launch.launcher = "srun -n {n} '--job-name={n} of {n}'";
  launch.options = {"--label"};
  launch.hosts = "not its";
  const Words words{"srun", "-n", "3", "--job-name=3 of 3", "--label", "env", "A=b c"};
  CHECK(launcher_words(launch, {{"A", "b c"}}) == words);
  CHECK(launch_words({"openmpi", "Open MPI", "openmpi", "/bin/mpirun", {}, {}}, launch, {{"A", "b c"}}) == words);
}

TEST_CASE("without one the mpirun of the runtime starts the ranks") {
  Launch launch;
  launch.hosts = "a,b";
  launch.in_turn = true;
  launch.options = {"-v"};
  CHECK(shell_line(launch_words({"openmpi", "Open MPI", "openmpi", "/o/mpirun", {}, {}}, launch, {{"A", "b"}})) ==
        "/o/mpirun -n 2 --oversubscribe --bind-to none --host a,b --map-by node -x A=b -v");
  CHECK(shell_line(launch_words({"mpich", "MPICH", "mpich", "/m/mpirun", {}, {}}, launch, {{"A", "b"}})) ==
        "/m/mpirun -n 2 -hosts a,b -ppn 1 -genv A b -v");
}

}  // namespace farside::run_words_test
