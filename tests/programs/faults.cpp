
#include "faults/cable.hpp"
#include "faults/lost.hpp"
#include "faults/process.hpp"

namespace faults {
namespace {

// Returns only if the launcher does not end this rank.
int killed(const check::Program& program) {
  const auto doom = [] {
    if (check::rank() != kVictim) return;
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(getpid(), SIGKILL);
    }).detach();
  };
  const auto end = Clock::now() + std::chrono::seconds(60);
  if (program.has("creation")) {
    doom();
    while (Clock::now() < end) const check::Window window(program.memory(), 4096, 1);
  }
  const check::Window window(program.memory(), kBytes, 8);
  doom();
  for (const auto& [name, round] : kWorks) {
    if (!program.has(name)) continue;
    for (int number = 0; Clock::now() < end; ++number) round(window, number);
  }
  std::fprintf(stderr, "faults: rank %d went on for a minute\n", check::rank());
  return 3;
}

}  // namespace
}  // namespace faults

int main(int argc, char** argv) {
  using namespace faults;
  // The second thread only sends signals.
  check::Program program(argc, argv, MPI_THREAD_FUNNELED);
  if (program.has("gone")) gone(program);
  if (program.has("interrupted")) return interrupted(program);
  if (program.has("dead")) return dead(program);
  if (program.has("vanished")) return vanished(program);
  if (program.has("reused")) return reused(program);
  if (program.has("undumpable")) return undumpable(program);
  if (program.has("errors")) return errors(program);
  return program.has("stopped") || program.has("cut") ? stopped(program) : killed(program);
}
