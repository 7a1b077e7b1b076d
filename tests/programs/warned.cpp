// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_CHECK=warn: what breaks a rule without harm is carried out, and reported once per place; what the
// protocols rely on is refused as always. At least two ranks.
#include <array>
#include <string>

#include "check.hpp"
#include "stderr.hpp"

namespace {

constexpr int kTimes = 20;

int lines_with(const std::string& text, const std::string& words) {
  int count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

[[gnu::noinline]] void put(const int& value, int target, MPI_Win window) {
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, 0, 1, MPI_INT, window));
}

[[gnu::noinline]] void put_elsewhere(const int& value, int target, MPI_Win window) {
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, target, 1, 1, MPI_INT, window));
}

void outside_epochs(const check::Window& window) {
  check::section("operations and flushes outside epochs arrive, and each place is reported once");
  const int next = (check::rank() + 1) % check::size(), previous = (check::rank() + check::size() - 1) % check::size();
  check::Stderr captured;
  std::array<int, kTimes> values{};
  for (int i = 0; i < kTimes; ++i) {
    values[static_cast<std::size_t>(i)] = 100 * check::rank() + i;
    put(values[static_cast<std::size_t>(i)], next, window);
    put_elsewhere(values[static_cast<std::size_t>(i)], next, window);
    CHECK_MPI(MPI_Win_flush(next, window));
  }
  const int one = 1;
  int before = -1;
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT, next, 2, MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  CHECK_EQ(before, 0);
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Rput(&one, 1, MPI_INT, next, 3, 1, MPI_INT, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Win_flush(next, window));
  const std::string text = captured.end();
  CHECK_EQ(lines_with(text, "MPI_Put on window 'warned', target " + std::to_string(next) +
                                ": operation outside any access epoch; open one first"),
           2);
  CHECK_EQ(lines_with(text, "MPI_Win_flush on window 'warned'"), 2);
  CHECK_EQ(lines_with(text, "MPI_Fetch_and_op on"), 1);
  CHECK_EQ(lines_with(text, "MPI_Win_flush_all on"), 1);
  CHECK_EQ(lines_with(text, "MPI_Rput on"), 2);  // breaks two rules
  CHECK_EQ(lines_with(text, "carried out all the same, called from "), 8);
  CHECK_EQ(lines_with(text, ": error: "), 0);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_sync(window));
  CHECK_EQ(window.as<int>()[0], 100 * previous + kTimes - 1);
  CHECK_EQ(window.as<int>()[1], 100 * previous + kTimes - 1);
  CHECK_EQ(window.as<int>()[2], 1);
  CHECK_EQ(window.as<int>()[3], 1);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void assertions(const check::Window& window) {
  check::section("false and unknown assertions are reported");
  const int next = (check::rank() + 1) % check::size(), previous = (check::rank() + check::size() - 1) % check::size();
  const int value = 7 + check::rank();
  check::Stderr captured;
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  CHECK_EQ(window.as<int>()[0], 7 + previous);
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT, next, 1, 1, MPI_INT, window));
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOCHECK | MPI_MODE_NOSUCCEED, window));
  CHECK_EQ(window.as<int>()[1], 7 + previous);
  const std::string text = captured.end();
  CHECK_EQ(lines_with(text, "MPI_MODE_NOPRECEDE, but operations were issued"), 1);
  // Of MPI_MODE_NOPUT not each origin hears, on several nodes.
  const int puts = lines_with(text, "MPI_Put on window 'warned'");
  const char* const route = std::getenv("TEST_ROUTE");
  CHECK(puts == 1 || (puts == 0 && route != nullptr && std::string(route) == "hosts"));
  CHECK_EQ(lines_with(text, "is not one of this call"), 1);
  CHECK_EQ(lines_with(text, "carried out all the same"), 2 + puts);
}

void refused(const check::Window& window) {
  check::section("calls that open and close epochs, and ranges, are judged as always");
  const int next = (check::rank() + 1) % check::size();
  const int value = 1;
  check::Stderr captured;
  CHECK_EQ(check::class_of(MPI_Win_unlock(next, window)), MPI_ERR_RMA_SYNC);
  CHECK_EQ(check::class_of(MPI_Win_complete(window)), MPI_ERR_RMA_SYNC);
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_EQ(check::class_of(MPI_Win_fence(0, window)), MPI_ERR_RMA_SYNC);
  CHECK_EQ(check::class_of(MPI_Put(&value, 1, MPI_INT, next, 4096, 1, MPI_INT, window)), MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_EQ(lines_with(captured.end(), "carried out all the same"), 0);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (check::size() < 2) return check::kSkipped;
  const check::Window window(program.memory(), 16 * sizeof(int), sizeof(int));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_set_name(window, "warned"));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  outside_epochs(window);
  assertions(window);
  refused(window);
}
