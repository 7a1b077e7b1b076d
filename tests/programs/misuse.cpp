// SPDX-License-Identifier: BSD-3-Clause
// Mistakes, one by one: each must be refused with its class, be reported in one line with the remedy, and change
// nothing, and the window must work afterwards. Two ranks: rank 0 makes each mistake, mostly both do.
//
//   misuse [create]           all mistakes
//   misuse [create] only N    the N-th mistake (from 1)
//   misuse report N           the runtime's reaction to the N-th, as "rank R: silent|right|other: CLASS", for
//                             tests/system/native_misuse; afterwards the window is used as after a refusal
//   misuse names              one line per mistake
//   misuse fatal              one mistake under MPI_ERRORS_ARE_FATAL: this run must fail
#include "misuse/cases.hpp"

namespace {

using namespace misuse;  // NOLINT(google-build-using-namespace)

// Returns all cases, numbered in this order, which is also that of tools/figures/misuse.csv.
std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const Cases& each :
       {outside_epochs(), fences(), locks(), start_and_post(), other_side(), arguments(), range(), wrong_windows()}) {
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

// An error handler of the user is called once per mistake, and may query the window.
int told = 0;
int told_class = 0;
void tell(MPI_Win* window, int* code, ...) {
  char name[MPI_MAX_OBJECT_NAME] = {};
  int length = 0;
  MPI_Win_get_name(*window, name, &length);
  CHECK_EQ(std::string(name), std::string("misused"));
  ++told;
  told_class = check::class_of(*code);
}

void user_function(Scene& s) {
  check::section("a function of the user");
  MPI_Errhandler handler;
  CHECK_MPI(MPI_Win_create_errhandler(tell, &handler));
  CHECK_MPI(MPI_Win_set_errhandler(s.window, handler));
  CHECK_REFUSED(MPI_Win_unlock(s.next, s.window), MPI_ERR_RMA_SYNC);
  CHECK_EQ(told, 1);
  CHECK_EQ(told_class, MPI_ERR_RMA_SYNC);
  s.lock_all();
  CHECK_REFUSED(MPI_Put(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window), MPI_ERR_RMA_RANGE);
  s.unlock_all();
  CHECK_EQ(told, 2);
  CHECK_EQ(told_class, MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Win_set_errhandler(s.window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Errhandler_free(&handler));
  s.works();
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const std::vector<Case> cases = all_cases();
  if (program.has("names")) {
    if (check::rank() == 0) {
      for (const Case& each : cases) std::printf("%s\n", each.name);
    }
    return 0;
  }
  CHECK_EQ(check::size(), 2);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  const bool report = program.has("report");
  Scene scene(program.memory(), report);
  if (report || program.has("only")) {
    const std::size_t number = static_cast<std::size_t>(program.number(report ? "report" : "only", 0));
    CHECK(number >= 1 && number <= cases.size());
    scene.run(cases[number - 1]);
    if (report) std::printf("rank %d: works\n", check::rank());
    return 0;
  }
  if (program.has("fatal")) {
    check::section("MPI_ERRORS_ARE_FATAL");
    CHECK_MPI(MPI_Win_set_errhandler(scene.window, MPI_ERRORS_ARE_FATAL));
    MPI_Win_complete(scene.window);
    return 0;  // not reached
  }
  for (const Case& each : cases) scene.run(each);
  user_function(scene);
  if (check::rank() == 0) std::printf("%zu mistakes refused\n", cases.size());
  check::section("MPI_Win_free");
  return 0;
}
