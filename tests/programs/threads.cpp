
#include <span>

#include "threads/locks.hpp"
#include "threads/operations.hpp"
#include "threads/waits.hpp"

int main(int argc, char** argv) {
  using namespace threads;
  check::Program program(argc, argv, MPI_THREAD_MULTIPLE);
  rank = check::rank();
  size = check::size();
  int level = MPI_THREAD_SINGLE;
  CHECK_MPI(MPI_Query_thread(&level));
  if (level < MPI_THREAD_MULTIPLE) {
    if (rank == 0) std::puts("skipped: this runtime does not provide MPI_THREAD_MULTIPLE");
    return check::kSkipped;
  }
  if (!program.has("at_once") && !program.has("one") && !check::conforming()) {
    check::section("a put beside a thread that waits in a collective");
    beside_a_collective(program.memory());
  }
  const check::Section<check::Memory> sections[] = {
      {"each thread with windows of its own", windows_of_their_own, "11.6"},
      {"threads with different operations on one window", one_window, "11.6"},
      {"requests that other threads complete", requests_of_other_threads, "11.6"},
      {"threads with locks on different targets", locks_on_different_targets, "11.6"},
      {"locks by threads beside other calls", locks_beside_other_calls},
      {"gets of one thread beside locks of another", gets_beside_locks},
      {"threads within one lock_all", lock_all_by_threads, "11.6"},
      {"a thread that begins to add long rows where others count", rows_begin},
      {"locks by threads against lock_all", locks_against_lock_all},
      {"calls beside a lock that waits", calls_beside_a_lock_that_waits},
      {"calls beside a start and a wait that wait", calls_beside_a_start_and_a_wait},
      {"operations at the end of a thread", operations_at_the_end_of_a_thread},
  };
  const std::size_t chosen = program.has("one") ? static_cast<std::size_t>(program.seed()) % std::size(sections) : 0;
  check::run(std::span(sections).subspan(chosen, program.has("one") ? 1 : std::size(sections)), program.memory());
  return 0;
}
