// SPDX-License-Identifier: BSD-3-Clause
// Between two hosts, an exclusive lock that ranks contend for passes from one to the next in three latencies: the
// departure, its reply with the next slot, and the wake. Both hosts have the same clock (support/virtual_hosts).
//
//   hand_off delay MICROSECONDS    one way, of the cable; rank 0's host has the first half of the ranks
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

// `called` and `fetched` are nanoseconds of the clock.
struct Turn {
  std::int64_t number, called, fetched, rank;
};

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

Turn take_turn(MPI_Win window) {
  Turn turn{.number = -1, .called = now(), .fetched = 0, .rank = check::rank()};
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Fetch_and_op(&one, &turn.number, MPI_INT64_T, 0, 0, MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush(0, window));
  turn.fetched = now();
  CHECK_MPI(MPI_Win_unlock(0, window));
  return turn;
}

}  // namespace

int main(int argc, char** argv) {
  const check::Program program(argc, argv);
  const auto delay = static_cast<double>(program.number("delay", 0)) * 1e3;
  MPI_Info info = MPI_INFO_NULL;
  CHECK_MPI(MPI_Info_create(&info));
  CHECK_MPI(MPI_Info_set(info, "farside_near_hand_offs", "0"));
  {
    const check::Window window(program.memory(), sizeof(std::int64_t), 1, MPI_COMM_WORLD, info);
    constexpr int kTurns = 25;
    std::vector<Turn> own, all(static_cast<std::size_t>(check::size()) * kTurns);
    for (int i = 0; i < kTurns; ++i) {
      // Without a pause, the ranks of the target's host may be done before a request of the others arrives.
      if (check::rank() < check::size() / 2)
        std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(4 * delay));
      own.push_back(take_turn(window));
    }
    constexpr int kWords = kTurns * sizeof(Turn) / sizeof(std::int64_t);
    CHECK_MPI(MPI_Gather(own.data(), kWords, MPI_INT64_T, all.data(), kWords, MPI_INT64_T, 0, MPI_COMM_WORLD));
    std::sort(all.begin(), all.end(), [](const Turn& a, const Turn& b) { return a.number < b.number; });
    // In latencies, by where the two ranks are, if the next one waited. The fetch of a distant rank takes two more.
    std::array<std::vector<double>, 4> hand_offs;
    for (std::size_t i = 1; check::rank() == 0 && i < all.size(); ++i) {
      const Turn &before = all[i - 1], &next = all[i];
      const bool from_afar = before.rank >= check::size() / 2, to_afar = next.rank >= check::size() / 2;
      if (before.rank != next.rank && static_cast<double>(before.fetched - next.called) > 4 * delay)
        hand_offs[from_afar * 2 + to_afar].push_back(static_cast<double>(next.fetched - before.fetched) / delay -
                                                     to_afar * 2);
    }
    std::size_t counted = 0;
    for (auto& each : hand_offs) {
      counted += each.size();
      if (each.size() < 10) continue;
      const auto quarter =
          each.begin() + static_cast<std::ptrdiff_t>(each.size() / 4);  // a busy machine adds to others
      std::nth_element(each.begin(), quarter, each.end());
      std::printf("%zu hand-offs, three quarters take more than %.2f latencies\n", each.size(), *quarter);
      CHECK(*quarter <= 3.5);
    }
    if (check::rank() == 0) CHECK(counted > 70);
  }
  CHECK_MPI(MPI_Info_free(&info));
  return 0;
}
