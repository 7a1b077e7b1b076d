// SPDX-License-Identifier: BSD-3-Clause
// Small operands that the program changes as soon as the call has returned. MPI forbids this before the operation is
// complete (MPI 4.0 section 12.3), but the runtimes copy small operands at the call, and programs rely on it. farside
// copies operands of at most 256 bytes (transport/node/on-node.md).
#pragma once

#include "../check.hpp"

namespace put_get {

// An operation's arguments.
struct Operands {
  const std::int64_t* origin;
  const std::int64_t* compare;
  std::int64_t* result;
  int count;  // of 64-bit integers
  int target;
  MPI_Aint at;
  MPI_Win window;
  MPI_Request* request;
};

struct SmallOperation {
  const char* name;
  bool one_element;  // the call has no count
  bool request;
  int (*issue)(const Operands& o);
};

inline const SmallOperation kSmallOperations[] = {
    {"put", false, false,
     [](const Operands& o) {
       return MPI_Put(o.origin, o.count, MPI_INT64_T, o.target, o.at, o.count, MPI_INT64_T, o.window);
     }},
    {"accumulate", false, false,
     [](const Operands& o) {
       return MPI_Accumulate(o.origin, o.count, MPI_INT64_T, o.target, o.at, o.count, MPI_INT64_T, MPI_SUM, o.window);
     }},
    // Types of one byte have no atomics.
    {"accumulate of bytes", false, false,
     [](const Operands& o) {
       const int bytes = 8 * o.count;
       return MPI_Accumulate(o.origin, bytes, MPI_INT8_T, o.target, o.at, bytes, MPI_INT8_T, MPI_REPLACE, o.window);
     }},
    {"get_accumulate", false, false,
     [](const Operands& o) {
       return MPI_Get_accumulate(o.origin, o.count, MPI_INT64_T, o.result, o.count, MPI_INT64_T, o.target, o.at,
                                 o.count, MPI_INT64_T, MPI_SUM, o.window);
     }},
    {"fetch_and_op", true, false,
     [](const Operands& o) {
       return MPI_Fetch_and_op(o.origin, o.result, MPI_INT64_T, o.target, o.at, MPI_SUM, o.window);
     }},
    {"compare_and_swap", true, false,
     [](const Operands& o) {
       return MPI_Compare_and_swap(o.origin, o.compare, o.result, MPI_INT64_T, o.target, o.at, o.window);
     }},
    {"rput", false, true,
     [](const Operands& o) {
       return MPI_Rput(o.origin, o.count, MPI_INT64_T, o.target, o.at, o.count, MPI_INT64_T, o.window, o.request);
     }},
    {"raccumulate", false, true,
     [](const Operands& o) {
       return MPI_Raccumulate(o.origin, o.count, MPI_INT64_T, o.target, o.at, o.count, MPI_INT64_T, MPI_SUM, o.window,
                              o.request);
     }},
    {"rget_accumulate", false, true,
     [](const Operands& o) {
       return MPI_Rget_accumulate(o.origin, o.count, MPI_INT64_T, o.result, o.count, MPI_INT64_T, o.target, o.at,
                                  o.count, MPI_INT64_T, MPI_SUM, o.window, o.request);
     }},
};

// Issues each operation by itself, in an epoch that begin() opens and end() completes, and then all in one epoch.
struct SmallOperands {
  const check::Window& window;
  int rank;
  int size;
  bool requests;  // operations with requests, too
  int large;      // integers of a put that is issued first, so that the operations wait for room; 0: no such put

  static constexpr int kMost = 32;
  static constexpr int kCounts[] = {1, 5, kMost};
  static constexpr int kPlaces = static_cast<int>(std::size(kSmallOperations));
  static constexpr int kInts = kPlaces * kMost;  // integers before the place of the large put

  static std::int64_t value(int origin, int place, int i, int round) {
    return 1 + i + 1000 * (place + 100 * (origin + 100 * round));
  }

  template <class Begin, class End>
  void run(Begin&& begin, End&& end) const {
    const int target = (rank + 1) % size;
    const int origin = (rank + size - 1) % size;
    const std::vector<std::int64_t> filler(static_cast<std::size_t>(large), 7);
    std::int64_t* const mine = window.as<std::int64_t>();
    int round = 0;
    for (const int count : kCounts) {
      for (int first = 0; first <= kPlaces; ++first) {
        const int from = first == kPlaces ? 0 : first;
        const int to = first == kPlaces ? kPlaces : first + 1;
        if (to == from + 1 && kSmallOperations[from].request && !requests) continue;
        const auto each = [&](auto&& visit) {
          for (int place = from; place < to; ++place) {
            const SmallOperation& operation = kSmallOperations[place];
            if (requests || !operation.request) visit(operation, place, operation.one_element ? 1 : count);
          }
        };
        ++round;
        std::fill(mine, mine + kInts, 0);
        CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
        std::vector<std::int64_t> origins(kInts);
        std::vector<std::int64_t> compares(kInts, 0);
        std::vector<std::int64_t> results(kInts, -1);
        std::vector<MPI_Request> under_way(kPlaces, MPI_REQUEST_NULL);
        begin();
        if (large > 0) {
          CHECK_MPI(MPI_Put(filler.data(), large, MPI_INT64_T, target, kInts, large, MPI_INT64_T, window));
        }
        each([&](const SmallOperation& operation, int place, int used) {
          const int at = place * kMost;
          std::int64_t* const given = origins.data() + at;
          std::int64_t* const compare = compares.data() + at;
          for (int i = 0; i < used; ++i) given[i] = value(rank, place, i, round);
          CHECK_MPI(operation.issue({given, compare, results.data() + at, used, target, at, window,
                                     &under_way[static_cast<std::size_t>(place)]}));
          std::fill(given, given + used, -77);
          *compare = -77;
        });
        CHECK_MPI(MPI_Waitall(kPlaces, under_way.data(), MPI_STATUSES_IGNORE));
        end();
        each([&](const SmallOperation& operation, int place, int used) {
          for (int i = 0; i < used; ++i) {
            const std::int64_t seen = mine[place * kMost + i];
            const std::int64_t expected = value(origin, place, i, round);
            if (seen == expected) continue;
            check::fail(__FILE__, __LINE__,
                        std::string(operation.name) + " of " + std::to_string(used) + " integers: element " +
                            std::to_string(i) + " is " + check::show(seen) + ", not " + check::show(expected));
          }
        });
        CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
      }
    }
  }
};

inline void small_operands(check::Memory memory) {
  const char* const checks = std::getenv("FARSIDE_CHECK");
  if (checks != nullptr && std::string(checks) == "strict") return;  // strict checking reports these changes
  constexpr int kLarge = 1 << 20;                                    // more than a socket takes
  const int rank = check::rank();
  const int size = check::size();
  const int target = (rank + 1) % size;
  constexpr int kWord = sizeof(std::int64_t);
  const check::Window window(memory, static_cast<MPI_Aint>(kWord) * (SmallOperands::kInts + kLarge), kWord);
  const SmallOperands passive{window, rank, size, true, 0};
  // When all ranks have ended their epochs, each locks its own window and checks it.
  const auto look = [&] {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    CHECK_MPI(MPI_Win_unlock(rank, window));
  };
  for (const int kind : {MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE}) {
    passive.run([&] { CHECK_MPI(MPI_Win_lock(kind, target, 0, window)); },
                [&] {
                  CHECK_MPI(MPI_Win_unlock(target, window));
                  look();
                });
  }
  passive.run([&] { CHECK_MPI(MPI_Win_lock_all(0, window)); },
              [&] {
                CHECK_MPI(MPI_Win_unlock_all(window));
                look();
              });
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (const int large : {0, kLarge}) {
    SmallOperands{window, rank, size, true, large}.run([] {},
                                                       [&] {
                                                         CHECK_MPI(MPI_Win_flush(target, window));
                                                         CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
                                                         CHECK_MPI(MPI_Win_sync(window));
                                                       });
  }
  CHECK_MPI(MPI_Win_unlock_all(window));

  const SmallOperands active{window, rank, size, false, 0};
  active.run([&] { CHECK_MPI(MPI_Win_fence(0, window)); }, [&] { CHECK_MPI(MPI_Win_fence(0, window)); });
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  const check::Group origins({(rank + size - 1) % size});
  const check::Group targets({target});
  active.run(
      [&] {
        CHECK_MPI(MPI_Win_post(origins, 0, window));
        CHECK_MPI(MPI_Win_start(targets, 0, window));
      },
      [&] {
        CHECK_MPI(MPI_Win_complete(window));
        CHECK_MPI(MPI_Win_wait(window));
      });
}

}  // namespace put_get
