// SPDX-License-Identifier: BSD-3-Clause
// Progress in both directions:
//
//   progress [messages | computing | waiting] [allocate | create] [stopped]     (messages and computing unless one is
//                                                                               named)
//
// messages: a rank that waits in a one-sided call still moves its messages; otherwise these cases never end. computing:
// a rank that computes and calls nothing still serves its window; the origin must finish long before the target does.
// stopped: inside a node, so does a rank that a signal has stopped. waiting: a rank that waits in MPI_Barrier serves
// its window meanwhile; only statistics tell whether the barrier did that or a thread.
#include <complex>
#include <filesystem>
#include <sched.h>
#include <time.h>

#include "check.hpp"
#include "stopped.hpp"

namespace {

int rank;
int size;

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void nap(double seconds) {
  const timespec time{static_cast<time_t>(seconds),
                      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  nanosleep(&time, nullptr);
}

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

// ---- a rank that waits moves its messages

constexpr int kBytes = 1 << 20;

// Rank 0 sends more than any buffer holds and then waits for rank 1 in a one-sided call. Rank 1 ends that wait only
// after it has received the message.
struct Message {
  std::vector<char> data = std::vector<char>(kBytes, 'x');
  MPI_Request request = MPI_REQUEST_NULL;
  void send() { CHECK_MPI(MPI_Isend(data.data(), kBytes, MPI_CHAR, 1, 3, MPI_COMM_WORLD, &request)); }
  void wait() { CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE)); }
  void receive() {
    nap(0.05);  // rank 0 enters its call meanwhile
    std::fill(data.begin(), data.end(), ' ');
    CHECK_MPI(MPI_Recv(data.data(), kBytes, MPI_CHAR, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (char each : data) CHECK_EQ(each, 'x');
  }
};

void while_locking(check::Memory memory, int target, int kind) {
  check::Window window(memory, 8, 1);
  Message message;
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
    barrier();
    message.receive();
    CHECK_MPI(MPI_Win_unlock(target, window));
  } else {
    barrier();
    if (rank != 0) return;
    message.send();
    CHECK_MPI(MPI_Win_lock(kind, target, 0, window));
    // A runtime may acquire the lock as late as at the first operation.
    const char byte = 1;
    CHECK_MPI(MPI_Put(&byte, 1, MPI_CHAR, target, 0, 1, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
    message.wait();
  }
}

void while_locking_all(check::Memory memory) {
  check::Window window(memory, 8, 1);
  Message message;
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    barrier();
    message.receive();
    CHECK_MPI(MPI_Win_unlock(1, window));
  } else {
    barrier();
    if (rank != 0) return;
    message.send();
    CHECK_MPI(MPI_Win_lock_all(0, window));
    const char byte = 1;
    CHECK_MPI(MPI_Put(&byte, 1, MPI_CHAR, 1, 0, 1, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_unlock_all(window));
    message.wait();
  }
}

void while_starting(check::Memory memory) {
  check::Window window(memory, 8, 1);
  Message message;
  if (rank == 0) {
    const check::Group to({1});
    message.send();
    CHECK_MPI(MPI_Win_start(to, 0, window));
    const char byte = 1;
    CHECK_MPI(MPI_Put(&byte, 1, MPI_CHAR, 1, 0, 1, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_complete(window));
    message.wait();
  } else if (rank == 1) {
    const check::Group from({0});
    message.receive();
    CHECK_MPI(MPI_Win_post(from, 0, window));
    CHECK_MPI(MPI_Win_wait(window));
  }
}

// The access epoch begins before the message, where start does not wait, so MPI_Win_complete waits.
void while_completing(check::Memory memory) {
  check::Window window(memory, kBytes, 1);
  Message message;
  if (rank == 0) {
    const check::Group to({1});
    barrier();
    CHECK_MPI(MPI_Win_start(to, 0, window));
    message.send();
    CHECK_MPI(MPI_Put(message.data.data(), kBytes, MPI_CHAR, 1, 0, kBytes, MPI_CHAR, window));
    CHECK_MPI(MPI_Win_complete(window));
    message.wait();
  } else if (rank == 1) {
    const check::Group from({0});
    CHECK_MPI(MPI_Win_post(from, 0, window));
    barrier();
    message.receive();
    CHECK_MPI(MPI_Win_wait(window));
    CHECK_EQ(window.as<char>()[kBytes - 1], 'x');
  } else {
    barrier();
  }
}

void while_waiting(check::Memory memory) {
  check::Window window(memory, 8, 1);
  Message message;
  if (rank == 0) {
    const check::Group from({1});
    message.send();
    CHECK_MPI(MPI_Win_post(from, 0, window));
    CHECK_MPI(MPI_Win_wait(window));
    message.wait();
  } else if (rank == 1) {
    const check::Group to({0});
    CHECK_MPI(MPI_Win_start(to, 0, window));
    message.receive();
    CHECK_MPI(MPI_Win_complete(window));
  }
}

void while_fencing(check::Memory memory) {
  check::Window window(memory, 8, 1);
  Message message;
  CHECK_MPI(MPI_Win_fence(0, window));
  if (rank == 0) message.send();
  if (rank == 1) message.receive();
  CHECK_MPI(MPI_Win_fence(0, window));
  if (rank == 0) message.wait();
}

// Rank 0 makes no call that waits for rank 1. It polls for a word that rank 1 sets when it has received the message.
enum class Asks { kFetchAndOp, kGet, kRget, kSync };

void while_asking(check::Memory memory, int target, Asks how) {
  check::Window window(memory, sizeof(std::int64_t), sizeof(std::int64_t));
  Message message;
  if (rank == 0) {
    message.send();
    CHECK_MPI(MPI_Win_lock_all(0, window));
    const std::int64_t zero = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    for (std::int64_t word = 0; word == 0;) {
      switch (how) {
        case Asks::kFetchAndOp:
          CHECK_MPI(MPI_Fetch_and_op(&zero, &word, MPI_INT64_T, target, 0, MPI_NO_OP, window));
          CHECK_MPI(MPI_Win_flush(target, window));
          break;
        case Asks::kGet:
          CHECK_MPI(MPI_Get(&word, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window));
          CHECK_MPI(MPI_Win_flush_local_all(window));
          break;
        case Asks::kRget:
          CHECK_MPI(MPI_Rget(&word, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, window, &request));
          CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
          break;
        case Asks::kSync:
          CHECK_MPI(MPI_Win_sync(window));
          word = *window.as<volatile std::int64_t>();
          break;
      }
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
    message.wait();
  } else if (rank == 1) {
    message.receive();
    const std::int64_t one = 1;
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, MPI_REPLACE, window));
    CHECK_MPI(MPI_Win_unlock(target, window));
  }
}

void while_freeing(check::Memory memory) {
  Message message;
  {
    check::Window window(memory, 8, 1);
    if (rank == 0) message.send();
    if (rank == 1) message.receive();
  }
  if (rank == 0) message.wait();
}

// ---- a rank that computes serves its window

constexpr double kSeconds = 2.0;
constexpr double kMargin = 0.5;
constexpr int kDoubles = 20000;

struct Place {
  std::int64_t counter;
  std::int64_t swapped;
  struct {
    double value;
    int index;
  } least;
  long double sum;
  std::complex<double> product;
  std::int64_t words[64];
  double large[kDoubles];
};

enum class Busy { kComputing, kSleeping };

// Keeps rank 1 busy for two seconds without a call of MPI. Returns the time of its end, on the clock of this machine.
double be_busy(Busy busy) {
  const double end = now() + kSeconds;
  if (busy == Busy::kSleeping) {
    nap(kSeconds);
  } else {
    volatile double x = 1;
    while (now() < end) {
      for (int i = 0; i < 1000; ++i) x = x * 1.0000001;
    }
  }
  return now();
}

struct Step {
  const char* what;
  double done;
};

std::vector<Step> work_on(MPI_Win window, int target) {
  std::vector<Step> steps;
  const auto done = [&](const char* what) { steps.push_back({what, now()}); };
  const auto at = [](std::size_t offset) { return static_cast<MPI_Aint>(offset); };
  const std::int64_t one = 1;
  std::int64_t before = -1;
  std::int64_t words[64];
  for (int i = 0; i < 64; ++i) words[i] = 100 + i;

  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, window));
  CHECK_MPI(MPI_Put(words, 64, MPI_INT64_T, target, at(offsetof(Place, words)), 64, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(target, window));
  done("lock, put, unlock");
  CHECK_MPI(MPI_Win_lock_all(0, window));
  done("lock_all");
  CHECK_MPI(MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, at(offsetof(Place, counter)), MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_EQ(before, std::int64_t{40});
  done("fetch_and_op");
  const std::int64_t zero = 0;
  CHECK_MPI(MPI_Compare_and_swap(&one, &zero, &before, MPI_INT64_T, target, at(offsetof(Place, swapped)), window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_EQ(before, std::int64_t{0});
  done("compare_and_swap");
  std::int64_t seen[64] = {};
  CHECK_MPI(MPI_Get(seen, 64, MPI_INT64_T, target, at(offsetof(Place, words)), 64, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  CHECK_EQ(seen[63], std::int64_t{163});
  done("get");
  const long double half = 0.5L;
  CHECK_MPI(
      MPI_Accumulate(&half, 1, MPI_LONG_DOUBLE, target, at(offsetof(Place, sum)), 1, MPI_LONG_DOUBLE, MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  done("accumulate of a long double");
  const decltype(Place::least) low{-7.5, 3};
  CHECK_MPI(MPI_Accumulate(&low, 1, MPI_DOUBLE_INT, target, at(offsetof(Place, least)), 1, MPI_DOUBLE_INT, MPI_MINLOC,
                           window));
  CHECK_MPI(MPI_Win_flush(target, window));
  done("accumulate of a pair by MPI_MINLOC");
  const std::complex<double> turn{0, 1};
  CHECK_MPI(MPI_Accumulate(&turn, 1, MPI_C_DOUBLE_COMPLEX, target, at(offsetof(Place, product)), 1,
                           MPI_C_DOUBLE_COMPLEX, MPI_PROD, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  done("accumulate of a complex by MPI_PROD");
  const std::vector<double> large(kDoubles, 2.0);
  CHECK_MPI(MPI_Accumulate(large.data(), kDoubles, MPI_DOUBLE, target, at(offsetof(Place, large)), kDoubles, MPI_DOUBLE,
                           MPI_SUM, window));
  CHECK_MPI(MPI_Win_flush(target, window));
  done("accumulate of many doubles");
  CHECK_MPI(MPI_Win_unlock_all(window));
  done("unlock_all");
  return steps;
}

void target_is_busy(check::Memory memory, Busy busy) {
  check::Window window(memory, sizeof(Place), 1);
  if (size == 1) return;
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    auto* place = window.as<Place>();
    place->counter = 40;
    place->least = {0, 0};
    place->sum = 1.0L;
    place->product = 1;
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  barrier();
  if (rank == 0) {
    nap(0.1);
    const std::vector<Step> steps = work_on(window, 1);
    double computed = 0;
    CHECK_MPI(MPI_Recv(&computed, 1, MPI_DOUBLE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (const Step& step : steps) {
      if (step.done < computed - kMargin) continue;
      check::fail(__FILE__, __LINE__,
                  std::string(step.what) + " was done only " + check::show(computed - step.done) +
                      " s before the target had computed");
    }
  } else if (rank == 1) {
    const double computed = be_busy(busy);
    CHECK_MPI(MPI_Send(&computed, 1, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD));
  }
  barrier();
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    const auto* place = window.as<Place>();
    CHECK_EQ(place->counter, std::int64_t{41});
    CHECK_EQ(place->swapped, std::int64_t{1});
    CHECK_EQ(place->least.value, -7.5);
    CHECK_EQ(place->least.index, 3);
    CHECK_EQ(place->sum, 1.5L);
    CHECK_EQ(place->product, (std::complex<double>{0, 1}));
    for (double each : place->large) CHECK_EQ(each, 2.0);
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
}

// Binds all threads of this process to one of the processors that it may use, or to all of these again.
class OneProcessor {
 public:
  explicit OneProcessor(int number) {
    CHECK_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int each = 0, left = number % CPU_COUNT(&before_); each < CPU_SETSIZE; ++each) {
      if (CPU_ISSET(each, &before_) && left-- == 0) CPU_SET(each, &one);
    }
    bind(one);
  }
  ~OneProcessor() { bind(before_); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  static void bind(const cpu_set_t& to) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      (void)sched_setaffinity(std::stoi(task.path().filename()), sizeof to, &to);
  }
  cpu_set_t before_;
};

// The target combines rows on its own window in a loop. Its main thread and its other threads share a processor. An
// accumulate of the other rank waits for one row, and not until it happens to find the window unused.
void target_accumulates(check::Memory memory) {
  constexpr int kRow = 2048, kFew = 16;
  check::Window window(memory, kRow * sizeof(double), 8);
  if (size == 1) return;
  const OneProcessor processor(rank);
  const std::vector<double> ones(kRow, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  double mean[2] = {};  // without and with the target's accumulates
  for (const bool busy : {false, true}) {
    barrier();
    const double begin = now();
    if (rank == 1) {
      while (now() - begin < 1) {
        if (busy) CHECK_MPI(MPI_Accumulate(ones.data(), kRow, MPI_DOUBLE, 1, 0, kRow, MPI_DOUBLE, MPI_SUM, window));
      }
    } else if (rank == 0) {
      int times = 0;
      for (; now() - begin < 0.75; ++times) {
        CHECK_MPI(MPI_Accumulate(ones.data(), kFew, MPI_DOUBLE, 1, 0, kFew, MPI_DOUBLE, MPI_SUM, window));
        CHECK_MPI(MPI_Win_flush(1, window));
      }
      mean[busy ? 1 : 0] = (now() - begin) / times;
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  if (mean[1] > 20 * mean[0] && mean[1] > 1e-3) {
    check::fail(__FILE__, __LINE__,
                "an accumulate takes " + check::show(mean[1] * 1e6) +
                    " us beside a target that "
                    "accumulates, and else " +
                    check::show(mean[0] * 1e6) + " us");
  }
}

// Inside a node private memory is reached without the target's help. What was given to the target is not executed
// again when it continues.
void target_is_stopped(check::Memory memory) {
  constexpr int kBlocks = 100, kApart = 700, kRounds = 3;
  check::Window window(memory, kBlocks * kApart * sizeof(std::int64_t), 8);
  if (size == 1) return;
  const std::vector<int> pids = check::pids_here();
  MPI_Datatype blocks = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(kBlocks, 1, kApart, MPI_INT64_T, &blocks));
  CHECK_MPI(MPI_Type_commit(&blocks));
  if (rank == 0) {
    std::vector<std::int64_t> ones(kBlocks, 1), got(kBlocks), before(kBlocks);
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    const check::Stopped stopped(pids[1]);
    const auto timed = [&](const char* what, auto&& work) {
      const double begin = now();
      work();
      CHECK_MPI(MPI_Win_flush(1, window));
      if (now() - begin > kMargin)
        check::fail(__FILE__, __LINE__, std::string(what) + " took " + check::show(now() - begin) + " s");
    };
    for (int round = 1; round <= kRounds; ++round) {
      timed("put", [&] { CHECK_MPI(MPI_Put(ones.data(), kBlocks, MPI_INT64_T, 1, 1, 1, blocks, window)); });
      timed("accumulate", [&] {
        CHECK_MPI(MPI_Accumulate(ones.data(), kBlocks, MPI_INT64_T, 1, 1, 1, blocks, MPI_SUM, window));
        CHECK_MPI(MPI_Accumulate(ones.data(), kBlocks, MPI_INT64_T, 1, 2, 1, blocks, MPI_SUM, window));
      });
      timed("get_accumulate", [&] {
        CHECK_MPI(MPI_Get_accumulate(ones.data(), kBlocks, MPI_INT64_T, before.data(), kBlocks, MPI_INT64_T, 1, 1, 1,
                                     blocks, MPI_SUM, window));
      });
      CHECK_EQ(before, std::vector<std::int64_t>(kBlocks, 2));
      timed("get", [&] { CHECK_MPI(MPI_Get(got.data(), kBlocks, MPI_INT64_T, 1, 1, 1, blocks, window)); });
      CHECK_EQ(got, std::vector<std::int64_t>(kBlocks, 3));
      timed("a single word", [&] {
        CHECK_MPI(MPI_Put(&ones[0], 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, window));
        CHECK_MPI(MPI_Win_flush(1, window));
        CHECK_MPI(MPI_Fetch_and_op(&ones[0], &before[0], MPI_INT64_T, 1, 1, MPI_SUM, window));
      });
      CHECK_EQ(before[0], std::int64_t{1});
    }
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  barrier();
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    const auto* const words = window.as<std::int64_t>();
    for (int block = 0; block < kBlocks; ++block) {
      CHECK_EQ(words[block * kApart + 1], std::int64_t{block == 0 ? 2 : 3});
      CHECK_EQ(words[block * kApart + 2], std::int64_t{kRounds});
    }
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  CHECK_MPI(MPI_Type_free(&blocks));
}

// ---- a rank that waits in MPI serves

void target_is_in_barrier(check::Memory memory) {
  // So many that on a busy machine, too, some of them find the thread that waits in the barrier polling.
  constexpr double kInBarrier = 1;
  constexpr long long kLeast = 2000;
  check::Window window(memory, sizeof(std::complex<double>), sizeof(std::complex<double>));
  auto* place = window.as<std::complex<double>>();
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, window));
    *place = 0;
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
  barrier();
  long long done = 0;
  if (rank == 0) {
    CHECK_MPI(MPI_Win_lock_all(0, window));
    for (const double begun = now(); now() - begun < kInBarrier || done < kLeast; ++done) {
      const std::complex<double> more(1, -1);  // no provider adds these, so the target's process does
      CHECK_MPI(MPI_Accumulate(&more, 1, MPI_C_DOUBLE_COMPLEX, 1, 0, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, window));
      CHECK_MPI(MPI_Win_flush(1, window));
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
  }
  barrier();
  CHECK_MPI(MPI_Bcast(&done, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD));
  CHECK(done > 0);
  if (rank == 1) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window));
    CHECK_EQ(*place, (std::complex<double>{static_cast<double>(done), -static_cast<double>(done)}));
    CHECK_MPI(MPI_Win_unlock(1, window));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  rank = check::rank();
  size = check::size();
  const check::Memory memory = program.memory();
  using check::Memory;
  if (program.has("waiting")) {
    const check::Section<Memory> in_barrier[] = {{"the target waits in MPI_Barrier", target_is_in_barrier}};
    check::run(in_barrier, memory);
    return 0;
  }
  if (!program.has("computing") && size > 1) {
    const check::Section<Memory> waiting[] = {
        {"a pending message and a lock on the window of the holder",
         [](Memory of) { while_locking(of, 1, MPI_LOCK_EXCLUSIVE); }},
        {"a pending message and a lock on one's own window", [](Memory of) { while_locking(of, 0, MPI_LOCK_SHARED); }},
        {"a pending message and lock_all", while_locking_all},
        {"a pending message and start", while_starting},
        {"a pending message and complete", while_completing},
        {"a pending message and wait", while_waiting},
        {"a pending message and fence", while_fencing},
        {"a pending message and free", while_freeing},
    };
    check::run(waiting, memory);
    const check::Section<Memory, int> asking[] = {
        {"a pending message and fetch_and_op with flush, again and again",
         [](Memory of, int target) { while_asking(of, target, Asks::kFetchAndOp); }},
        {"a pending message and get with flush_local_all, again and again",
         [](Memory of, int target) { while_asking(of, target, Asks::kGet); }},
        {"a pending message and Rget with wait, again and again",
         [](Memory of, int target) { while_asking(of, target, Asks::kRget); }},
    };
    for (int target : {0, 1}) check::run(asking, memory, target);
    check::section("a pending message and MPI_Win_sync, again and again");
    while_asking(memory, 0, Asks::kSync);
  }
  if (!program.has("messages")) {
    const check::Section<Memory> busy[] = {
        {"the target computes", [](Memory of) { target_is_busy(of, Busy::kComputing); }},
        {"the target sleeps", [](Memory of) { target_is_busy(of, Busy::kSleeping); }},
        {"the target accumulates", target_accumulates},
    };
    check::run(busy, memory);
    const check::Section<Memory> stopped[] = {{"the target is stopped", target_is_stopped}};
    if (program.has("stopped")) check::run(stopped, memory);
  }
  return 0;
}
