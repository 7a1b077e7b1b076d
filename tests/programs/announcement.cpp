// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_LOG=info, rank 0 says in one line at its first window that farside is active, and what it uses; without,
// no rank says anything. Rank 0 alone warns, once, about a variable that is not a setting (FARSIDE_TYPO, by the
// caller). run_program passes the route (TEST_ROUTE).
#include <regex>
#include <string>

#include "check.hpp"
#include "stderr.hpp"

namespace {

int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
  return count;
}

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

int nodes() {
  MPI_Comm node = check::node_communicator();
  int rank = 0;
  CHECK_MPI(MPI_Comm_rank(node, &rank));
  const int leads = rank == 0 ? 1 : 0;
  int leaders = 0;
  CHECK_MPI(MPI_Allreduce(&leads, &leaders, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK_MPI(MPI_Comm_free(&node));
  return leaders;
}

// The whole line, as a regular expression.
std::string expected(const std::string& route, bool on_two_nodes) {
  const bool alone = check::size() == 1;
  // On two hosts with two ranks each, rank 0 reaches one of them through shared memory.
  const bool mapped_too = route == "hosts" && check::size() > 2;
  const std::string routes = alone ? "self" : mapped_too ? "mapped,fabric" : route == "hosts" ? "fabric" : route;
  const bool by_fabric = !alone && (route == "fabric" || route == "hosts");
  return "farside\\[0\\]: info: farside [0-9]+\\.[0-9]+\\.[0-9]+ is active on (Open MPI|MPICH) [0-9]+\\.[0-9.a-z]+; "
         "ranks: " +
         std::to_string(check::size()) + ", nodes: " + (on_two_nodes ? "2" : "1") + ", routes: " + routes +
         ", provider: " + (by_fabric ? "tcp" : "none") + ", device: " + (by_fabric ? "[a-z0-9]+" : "none") +
         ", checks: " + setting("FARSIDE_CHECK", "on");
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const int node_count = nodes();
  const int next = (check::rank() + 1) % check::size();
  for (int round = 0; round < 2; ++round) {
    check::section(round == 0 ? "the first window" : "the second window");
    check::Stderr captured;
    const check::Window window(program.memory(), sizeof(int), sizeof(int));
    const std::string text = captured.end();
    const bool speaks = setting("FARSIDE_LOG", "warn") == "info" && round == 0 && check::rank() == 0;
    CHECK_EQ(count_of(text, "is active on"), speaks ? 1 : 0);
    const bool warns = std::getenv("FARSIDE_TYPO") != nullptr && round == 0 && check::rank() == 0;
    CHECK_EQ(count_of(text, "FARSIDE_TYPO is not a setting"), warns ? 1 : 0);
    const std::string line = expected(setting("TEST_ROUTE", ""), node_count == 2);
    if (speaks && !std::regex_search(text, std::regex("(^|\n)" + line + "\n"))) {
      check::fail(__FILE__, __LINE__, "no line is like " + line + "\nin: " + text);
    }
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_MPI(MPI_Put(&next, 1, MPI_INT, next, 0, 1, MPI_INT, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_EQ(*window.as<int>(), check::rank());
    CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  }
  return 0;
}
