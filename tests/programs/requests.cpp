// SPDX-License-Identifier: BSD-3-Clause
// Operations with a request: completed one by one, all together, by tests, and beside requests of messages.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sched.h>
#include <string>
#include <thread>
#include <utility>

#include "stopped.hpp"
#include "usage.hpp"

namespace {

int rank;
int size;
constexpr int kMany = 24;
constexpr int kInts = 1000;

int next() { return (rank + 1) % size; }
int previous() { return (rank + size - 1) % size; }

struct Buffers {
  std::vector<std::vector<int>> each{kMany, std::vector<int>(kInts)};
  void fill(int round) {
    for (int i = 0; i < kMany; ++i) {
      for (int j = 0; j < kInts; ++j)
        each[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = value(round, rank, i, j);
    }
  }
  static int value(int round, int origin, int i, int j) { return round * 1000000 + origin * 100000 + i * kInts + j; }
  int* operator[](int i) { return each[static_cast<std::size_t>(i)].data(); }
};

// The ways to complete a list of requests.
void wait_each(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL);
  }
}
void wait_all(std::vector<MPI_Request>& requests) {
  std::vector<MPI_Status> statuses(requests.size());
  CHECK_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data()));
}
void wait_any(std::vector<MPI_Request>& requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    int index = -1;
    CHECK_MPI(MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, MPI_STATUS_IGNORE));
    CHECK(index >= 0 && index < static_cast<int>(requests.size()));
  }
}
void wait_some(std::vector<MPI_Request>& requests) {
  std::vector<int> indices(requests.size());
  for (;;) {
    int done = 0;
    CHECK_MPI(
        MPI_Waitsome(static_cast<int>(requests.size()), requests.data(), &done, indices.data(), MPI_STATUSES_IGNORE));
    if (done == MPI_UNDEFINED) return;
  }
}
void test_each(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    int done = 0;
    while (!done) CHECK_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
  }
}
void test_all(std::vector<MPI_Request>& requests) {
  int done = 0;
  while (!done) {
    CHECK_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
  }
}
void look_first(std::vector<MPI_Request>& requests) {
  for (MPI_Request& request : requests) {
    int done = 0;
    while (!done) CHECK_MPI(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE));
    CHECK(request != MPI_REQUEST_NULL);
    CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
}
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
// Queries of several requests leave the requests as they are, so each request is completed by itself afterwards.
void query_any_first(std::vector<MPI_Request>& requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    int index = -1;
    int done = 0;
    while (!done) {
      CHECK_MPI(MPI_Request_get_status_any(static_cast<int>(requests.size()), requests.data(), &index, &done,
                                           MPI_STATUS_IGNORE));
    }
    CHECK(index >= 0 && index < static_cast<int>(requests.size()));
    CHECK(requests[static_cast<std::size_t>(index)] != MPI_REQUEST_NULL);
    CHECK_MPI(MPI_Wait(&requests[static_cast<std::size_t>(index)], MPI_STATUS_IGNORE));
  }
}
void query_all_first(std::vector<MPI_Request>& requests) {
  int done = 0;
  while (!done) {
    CHECK_MPI(
        MPI_Request_get_status_all(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE));
  }
  for (MPI_Request request : requests) CHECK(request != MPI_REQUEST_NULL);
  wait_each(requests);
}
void query_some_first(std::vector<MPI_Request>& requests) {
  std::vector<int> indices(requests.size());
  std::vector<MPI_Status> statuses(requests.size());
  for (;;) {
    int done = 0;
    CHECK_MPI(MPI_Request_get_status_some(static_cast<int>(requests.size()), requests.data(), &done, indices.data(),
                                          statuses.data()));
    if (done == MPI_UNDEFINED) return;
    for (int i = 0; i < done; ++i) {
      MPI_Request& request = requests[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])];
      CHECK(request != MPI_REQUEST_NULL);
      CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
  }
}
#endif

using Complete = void (*)(std::vector<MPI_Request>&);
constexpr Complete kCompletions[] = {
    wait_each,       wait_all,        wait_any,         wait_some, test_each, test_all, look_first,
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    query_any_first, query_all_first, query_some_first,
#endif
};

// Puts and gets, completed by every call. The buffer of a completed put may be reused; the buffer of a completed get
// has the data.
void puts_and_gets(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * kMany * kInts, sizeof(int));
  Buffers out;
  Buffers in;
  int round = 0;
  for (Complete complete : kCompletions) {
    out.fill(round);
    std::vector<MPI_Request> requests(kMany);
    CHECK_MPI(MPI_Win_lock_all(0, window));
    for (int i = 0; i < kMany; ++i) {
      CHECK_MPI(MPI_Rput(out[i], kInts, MPI_INT, next(), i * kInts, kInts, MPI_INT, window,
                         &requests[static_cast<std::size_t>(i)]));
    }
    complete(requests);
    for (MPI_Request request : requests) CHECK(request == MPI_REQUEST_NULL);
    out.fill(-1);
    CHECK_MPI(MPI_Win_flush(next(), window));
    for (int i = 0; i < kMany; ++i) {
      CHECK_MPI(MPI_Rget(in[i], kInts, MPI_INT, next(), i * kInts, kInts, MPI_INT, window,
                         &requests[static_cast<std::size_t>(i)]));
    }
    complete(requests);
    for (int i = 0; i < kMany; ++i) {
      for (int j = 0; j < kInts; ++j) CHECK_EQ(in[i][j], Buffers::value(round, rank, i, j));
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
    for (int i = 0; i < kMany * kInts; ++i) CHECK_EQ(window.as<int>()[i], Buffers::value(round, previous(), 0, i));
    CHECK_MPI(MPI_Win_unlock(rank, window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    ++round;
  }
}

void accumulates(check::Memory memory) {
  constexpr int kCount = 500;
  check::Window window(memory, kCount * sizeof(double), sizeof(double));
  std::vector<double> ones(kCount, 1.0);
  std::vector<double> before(kCount);
  int rounds = 0;
  for (Complete complete : kCompletions) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window));
    std::vector<MPI_Request> requests(2);
    CHECK_MPI(
        MPI_Raccumulate(ones.data(), kCount, MPI_DOUBLE, next(), 0, kCount, MPI_DOUBLE, MPI_SUM, window, &requests[0]));
    CHECK_MPI(MPI_Rget_accumulate(ones.data(), kCount, MPI_DOUBLE, before.data(), kCount, MPI_DOUBLE, next(), 0, kCount,
                                  MPI_DOUBLE, MPI_SUM, window, &requests[1]));
    complete(requests);
    // No other rank accesses this target.
    for (double value : before) CHECK_EQ(value, 2.0 * rounds + 1);
    CHECK_MPI(MPI_Win_unlock(next(), window));
    ++rounds;
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  for (int i = 0; i < kCount; ++i) CHECK_EQ(window.as<double>()[i], 2.0 * rounds);
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

// One list has requests of both kinds; the messages are so large that they need the receiver's progress.
void next_to_messages(check::Memory memory) {
  constexpr int kLarge = 1 << 18;
  check::Window window(memory, kLarge * sizeof(int), sizeof(int));
  std::vector<int> put(kLarge, 5 + rank);
  std::vector<int> sent(kLarge, 50 + rank);
  std::vector<int> received(kLarge);
  for (Complete complete : kCompletions) {
    std::fill(received.begin(), received.end(), -1);
    std::vector<MPI_Request> requests(4);
    CHECK_MPI(MPI_Win_lock_all(0, window));
    CHECK_MPI(MPI_Irecv(received.data(), kLarge, MPI_INT, previous(), 1, MPI_COMM_WORLD, &requests[0]));
    CHECK_MPI(MPI_Rput(put.data(), kLarge, MPI_INT, next(), 0, kLarge, MPI_INT, window, &requests[1]));
    CHECK_MPI(MPI_Isend(sent.data(), kLarge, MPI_INT, next(), 1, MPI_COMM_WORLD, &requests[2]));
    CHECK_MPI(MPI_Rput(put.data(), 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, window, &requests[3]));
    complete(requests);
    for (int value : received) CHECK_EQ(value, 50 + previous());
    CHECK_MPI(MPI_Win_unlock_all(window));
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
  for (int i = 0; i < kLarge; ++i) CHECK_EQ(window.as<int>()[i], 5 + previous());
  CHECK_MPI(MPI_Win_unlock(rank, window));
}

// A request may be completed after the epoch that issued it.
void completed_late(check::Memory memory) {
  check::Window window(memory, sizeof(int), sizeof(int));
  *window.as<int>() = 30 + rank;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  int seen = -1;
  MPI_Request request;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window));
  CHECK_MPI(MPI_Rget(&seen, 1, MPI_INT, next(), 0, 1, MPI_INT, window, &request));
  CHECK_MPI(MPI_Win_unlock(next(), window));
  CHECK_EQ(seen, 30 + next());
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// Returns whether operations over the fabric are under way while the process is stopped. (Inside a node no operation
// needs the target. A target on another machine is not stopped. An adapter does not need the target's process.)
bool needs_process(pid_t pid) {
  const char* routes = std::getenv("FARSIDE_ROUTES");
  const char* provider = std::getenv("FARSIDE_PROVIDER");
  return routes != nullptr && std::string(routes) == "fabric" && provider != nullptr &&
         !std::string_view(provider).starts_with("verbs") && pid != 0;
}

// While the target is stopped, operations that need it are issued and stay under way: the calls return, tests return
// false, and other operations complete.
void under_way(check::Memory memory) {
  check::Window window(memory, static_cast<MPI_Aint>(sizeof(int)) * kMany * kInts, sizeof(int));
  for (int i = 0; i < kMany * kInts; ++i) window.as<int>()[i] = rank * 1000000 + i;
  const std::vector<int> pids = check::pids_here();
  const bool needs_target = needs_process(pids.back());
  Buffers in;
  for (Complete complete : kCompletions) {
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0 && size > 1) {
      CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
      int first = -1;
      CHECK_MPI(MPI_Get(&first, 1, MPI_INT, 1, 0, 1, MPI_INT, window));
      CHECK_MPI(MPI_Win_flush(1, window));
      in.fill(-1);
      std::vector<MPI_Request> requests(kMany);
      int put = 1000000;
      {
        check::Stopped stopped(pids[1]);
        CHECK_MPI(MPI_Rput(&put, 1, MPI_INT, 1, 0, 1, MPI_INT, window, &requests[0]));
        for (int i = 1; i < kMany; ++i) {
          CHECK_MPI(MPI_Rget(in[i], kInts, MPI_INT, 1, i * kInts, kInts, MPI_INT, window,
                             &requests[static_cast<std::size_t>(i)]));
        }
        if (needs_target) {
          for (MPI_Request request : requests) {
            int done = 1;
            CHECK_MPI(MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE));
            CHECK_EQ(done, 0);
          }
          int message = 5;
          int received = 0;
          int index = -1;
          std::vector<MPI_Request> mixed = {requests[1], MPI_REQUEST_NULL, MPI_REQUEST_NULL};
          CHECK_MPI(MPI_Irecv(&received, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &mixed[2]));
          CHECK_MPI(MPI_Send(&message, 1, MPI_INT, 0, 2, MPI_COMM_SELF));
          CHECK_MPI(MPI_Waitany(3, mixed.data(), &index, MPI_STATUS_IGNORE));
          CHECK_EQ(index, 2);
          CHECK_EQ(received, 5);
          int done = 1;
          CHECK_MPI(MPI_Testall(kMany, requests.data(), &done, MPI_STATUSES_IGNORE));
          CHECK_EQ(done, 0);
        }
      }
      complete(requests);
      for (int i = 1; i < kMany; ++i) {
        for (int j = 0; j < kInts; ++j) CHECK_EQ(in[i][j], 1000000 + i * kInts + j);
      }
      CHECK_MPI(MPI_Win_unlock(1, window));
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
}

// Puts and gets that are too large for messages wait while many are under way to a target that is stopped: the memory
// of the origin does not grow with their number.
void to_a_stopped_target(check::Memory memory) {
  constexpr int kBytes = 4096;
  constexpr int kCalls = 40000;
  constexpr std::int64_t kMost = 16 * 1024;  // KiB
  const std::vector<int> pids = check::pids_here();
  if (!needs_process(pids.back())) return;
  check::Window window(memory, MPI_Aint{2} * kBytes, 1);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0 && size > 1) {
    std::vector<char> bytes(kBytes, 'x'), fetched(kBytes);
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    CHECK_MPI(MPI_Put(bytes.data(), kBytes, MPI_CHAR, 1, 0, kBytes, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_flush(1, window));
    const std::int64_t before = check::usage().heap;
    std::atomic<int> issued{0};
    check::stop(pids[1]);
    // Continues the target when the origin waits.
    std::thread continues([&] {
      for (int seen = -1; seen != issued && issued < kCalls;) {
        seen = issued;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
      CHECK_EQ(kill(pids[1], SIGCONT), 0);
    });
    std::int64_t most = before;
    for (; issued < kCalls; ++issued) {
      if (issued % 2 == 0) {
        CHECK_MPI(MPI_Put(bytes.data(), kBytes, MPI_CHAR, 1, 0, kBytes, MPI_CHAR, window));
      } else {
        CHECK_MPI(MPI_Get(fetched.data(), kBytes, MPI_CHAR, 1, kBytes, kBytes, MPI_CHAR, window));
      }
      if (issued % 1000 == 0) most = std::max(most, check::usage().heap);
    }
    most = std::max(most, check::usage().heap);
    continues.join();
    CHECK_MPI(MPI_Win_unlock(1, window));
    if (most - before > kMost) CHECK_EQ(most - before, kMost);
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// A request is complete when its own operation is, whatever was issued after it: over the fabric a small get completes,
// at least once, while a large one is under way.
void before_a_later_one(check::Memory memory) {
  if (size == 1) return;
  constexpr int kRounds = 20;
  constexpr int kWords = 1 << 21;
  check::Window window(memory, kWords * sizeof(int), sizeof(int));
  for (int i = 0; i < kWords; ++i) window.as<int>()[i] = rank * 1000003 + i;
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<int> large(kWords);
  int later_under_way = 0;
  for (int round = 0; round < kRounds; ++round) {
    int small = -1;
    MPI_Request first = MPI_REQUEST_NULL;
    MPI_Request later = MPI_REQUEST_NULL;
    CHECK_MPI(MPI_Rget(&small, 1, MPI_INT, next(), round, 1, MPI_INT, window, &first));
    CHECK_MPI(MPI_Rget(large.data(), kWords, MPI_INT, next(), 0, kWords, MPI_INT, window, &later));
    CHECK_MPI(MPI_Wait(&first, MPI_STATUS_IGNORE));
    CHECK_EQ(small, next() * 1000003 + round);
    int done = 0;
    CHECK_MPI(MPI_Request_get_status(later, &done, MPI_STATUS_IGNORE));
    later_under_way += done != 0 ? 0 : 1;
    CHECK_MPI(MPI_Wait(&later, MPI_STATUS_IGNORE));
    for (int i = 0; i < kWords; i += 4099) CHECK_EQ(large[static_cast<std::size_t>(i)], next() * 1000003 + i);
    large.assign(kWords, -1);
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  const char* const route = std::getenv("TEST_ROUTE");
  if (route != nullptr && std::string(route) == "fabric") CHECK(later_under_way > 0);
}

// The program never completes the requests of a window that is freed.
void left_behind(check::Memory memory) {
  MPI_Request request = MPI_REQUEST_NULL, freed = MPI_REQUEST_NULL;
  int seen = -1, other = -1;
  {
    check::Window window(memory, sizeof(int), sizeof(int));
    *window.as<int>() = 40 + rank;
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window));
    CHECK_MPI(MPI_Rget(&seen, 1, MPI_INT, next(), 0, 1, MPI_INT, window, &request));
    CHECK_MPI(MPI_Rget(&other, 1, MPI_INT, next(), 0, 1, MPI_INT, window, &freed));
    CHECK_MPI(MPI_Request_free(&freed));
    CHECK_MPI(MPI_Win_unlock(next(), window));
    CHECK_EQ(other, 40 + next());
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_EQ(seen, 40 + next());
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void wait_each_from_the_last(std::vector<MPI_Request>& requests) {
  for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
    CHECK_MPI(MPI_Wait(&*request, MPI_STATUS_IGNORE));
  }
}

// The cost of completing a request does not depend on the number of requests, and a request takes little memory: at
// most 150 bytes besides the runtime's generalized request (208 in Open MPI, 337 in MPICH). A flush completes the
// operations before, so the CPU time of this thread is that of the completion calls themselves.
void very_many(check::Memory memory) {
  const char* const route = std::getenv("TEST_ROUTE");
  if (route == nullptr || std::string(route) != "fabric") return;  // else each is complete on return
  constexpr int kFew = 1000;
  constexpr int kVeryMany = 60000;
  // A linear search takes 60 times as long; caches and noise have been seen to take up to 5 times.
  constexpr double kMostTimes = 15;
  constexpr std::int64_t kMostBytes = 150 + 337;
  check::Window window(memory, kVeryMany * sizeof(int), sizeof(int));
  if (rank == 0 && size > 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next(), 0, window));
    std::vector<int> out(kVeryMany);
    for (const auto& [name, complete] : {std::pair{"wait for all", &wait_all},
                                         {"wait for some", wait_some},
                                         {"wait from the last", wait_each_from_the_last}}) {
      const auto each = [&, complete = complete](int count) {
        std::vector<MPI_Request> requests(static_cast<std::size_t>(count));
        const std::int64_t before = check::usage().heap;
        for (int i = 0; i < count; ++i) {
          CHECK_MPI(MPI_Rput(&out[static_cast<std::size_t>(i)], 1, MPI_INT, next(), i, 1, MPI_INT, window,
                             &requests[static_cast<std::size_t>(i)]));
        }
        CHECK_MPI(MPI_Win_flush(next(), window));
        const std::int64_t bytes = 1024 * (check::usage().heap - before) / count;
        if (count == kVeryMany && bytes > kMostBytes) CHECK_EQ(bytes, kMostBytes);
        const double begun = cpu_seconds();
        complete(requests);
        return (cpu_seconds() - begun) / count;
      };
      double of_few = each(kFew);
      for (int i = 0; i < 4; ++i) of_few = std::max(of_few, each(kFew));
      const double of_many = each(kVeryMany);
      if (of_many > kMostTimes * of_few) {
        check::fail(__FILE__, __LINE__,
                    std::string(name) + ": " + std::to_string(1e9 * of_many) + " ns each of very many, " +
                        std::to_string(1e9 * of_few) + " ns each of few");
      }
    }
    CHECK_MPI(MPI_Win_unlock(next(), window));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Section<check::Memory> sections[] = {
      {"rput and rget", puts_and_gets, "12.3.5"},
      {"raccumulate and rget_accumulate", accumulates, "12.3.5"},
      {"requests of puts and of messages together", next_to_messages, "12.3.5"},
      {"requests completed after their epoch", completed_late, "12.3.5"},
      {"a request before a later one", before_a_later_one, "12.3.5"},
      {"requests completed after their window", left_behind},
      {"very many requests", very_many, "12.3.5"},
      {"requests that are under way while the target is stopped", under_way},
      {"operations on a target that is stopped", to_a_stopped_target},
  };
  check::run(sections, program.memory());
  return 0;
}
