// SPDX-License-Identifier: BSD-3-Clause
// Notified access: a target whose counter has reached a threshold finds the data of so many operations, of each call,
// size, datatype, epoch and flavor; counters, their resets, and mistakes. Ranks form a ring: each notifies the next one
// and waits for the one before it.
//
//   notify [create] [short]          short: without large puts, and without mistakes, whose output it captures
//   notify threads [create]          four threads in each rank
//   notify unsupported               a window of the runtime refuses the calls
#include <array>
#include <atomic>
#include <numeric>
#include <sched.h>
#include <thread>

#include "check.hpp"
#include "notified_calls.hpp"
#include "stderr.hpp"

namespace {

int rank, size, next, before;
std::size_t most = std::size_t{4} << 20;
constexpr std::array kSizes = {1, 8, 2048, 4097};
constexpr int kData = 0, kRead = 1;  // counters: data of the rank before; the next one has read mine

void barrier() { CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD)); }

MPI_Count value(MPI_Win window, int counter) {
  MPI_Count now = -1;
  CHECK_MPI(MPIX_Win_get_notify_value(window, counter, &now));
  return now;
}
void await(MPI_Win window, int counter, MPI_Count threshold) {
  CHECK_MPI(MPIX_Win_wait_notify(window, counter, threshold));
  CHECK(value(window, counter) >= threshold);
}
// Notifies without data.
void tell(MPI_Win window, int target, int counter) {
  CHECK_MPI(MPIX_Put_notify(nullptr, 0, MPI_BYTE, target, 0, 0, MPI_BYTE, counter, window));
}
void attach(MPI_Win window, int counters) { CHECK_MPI(MPIX_Win_set_num_notify(window, MPI_INFO_NULL, counters)); }

void counters(check::Memory memory) {
  const check::Window window(memory, 64, 1);
  int attached = -1;
  CHECK_MPI(MPIX_Win_get_num_notify(window, next, &attached));
  CHECK_EQ(attached, 0);
  for (const int more : {2, 0, 256, 1}) {
    const auto of = [&](int which) { return more == 256 ? 256 : more + which % 3; };
    attach(window, of(rank));
    for (int each = 0; each < size; ++each) {
      CHECK_MPI(MPIX_Win_get_num_notify(window, each, &attached));
      CHECK_EQ(attached, of(each));
    }
    CHECK_MPI(MPI_Win_lock_all(0, window));
    for (int counter = 0; counter < of(next); ++counter)
      for (int i = 0; i <= counter % 3; ++i) tell(window, next, counter);
    for (int counter = 0; counter < of(rank); ++counter) {
      await(window, counter, 1 + counter % 3);
      CHECK_EQ(value(window, counter), 1 + counter % 3);
      int flag = -1;
      CHECK_MPI(MPIX_Win_test_notify(window, counter, 2 + counter % 3, &flag));
      CHECK_EQ(flag, 0);
      CHECK_MPI(MPIX_Win_test_notify(window, counter, 1 + counter % 3, &flag));
      CHECK_EQ(flag, 1);
      if (counter % 2 == 0) continue;
      MPI_Count taken = -1;
      CHECK_MPI(MPIX_Win_reset_notify_value(window, counter, &taken));
      CHECK_EQ(taken, 1 + counter % 3);
      CHECK_EQ(value(window, counter), 0);
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
  }
  attach(window, 3);
  for (int counter = 0; counter < 3; ++counter) CHECK_EQ(value(window, counter), 0);
}

// One rank counts in all of its steps: what it has sent, the rank before it has, too.
class Steps {
 public:
  explicit Steps(MPI_Win window) : window_(window) {}
  // Waits for the data of the rank before, lets look() check them, and waits until the next one has done so.
  template <class Look>
  void received(Look&& look) {
    await(window_, kData, ++steps_);
    look();
    tell(window_, before, kRead);
    await(window_, kRead, steps_);
  }
  int next_step() const { return static_cast<int>(steps_) + 1; }

 private:
  MPI_Win window_;
  MPI_Count steps_ = 0;
};

void sizes(check::Memory memory) {
  const check::Window window(memory, static_cast<MPI_Aint>(most), 1);
  attach(window, 2);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  Steps steps(window);
  std::vector<unsigned char> data(most);
  for (const std::size_t bytes :
       {1, 7, 8, 64, 100, 257, 1024, 2048, 2049, 4096, 4097, 8192, 9000, 65536, 1 << 20, 4 << 20}) {
    if (bytes > most) break;
    for (const bool request : {false, true}) {
      const int step = steps.next_step(), count = static_cast<int>(bytes);
      for (std::size_t i = 0; i < bytes; ++i) data[i] = check::pattern(i, rank, step);
      MPI_Request made = MPI_REQUEST_NULL;
      CHECK_MPI(request ? MPIX_Rput_notify(data.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, kData, window, &made)
                        : MPIX_Put_notify(data.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, kData, window));
      steps.received([&] {
        for (std::size_t i = 0; i < bytes; ++i)
          CHECK_EQ(window.as<unsigned char>()[i], check::pattern(i, before, step));
      });
      CHECK_MPI(MPI_Wait(&made, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_flush(next, window));
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// The owner changes its window as soon as it has been read.
void gets(check::Memory memory) {
  const std::size_t bytes_at_most = std::min<std::size_t>(most, 1 << 20);
  const check::Window window(memory, static_cast<MPI_Aint>(bytes_at_most), 1);
  attach(window, 2);
  std::vector<unsigned char> data(bytes_at_most);
  const auto fill = [&](int step) {
    for (std::size_t i = 0; i < bytes_at_most; ++i) window.as<unsigned char>()[i] = check::pattern(i, rank, step);
  };
  fill(0);
  barrier();
  CHECK_MPI(MPI_Win_lock_all(0, window));
  int step = 0;
  for (const std::size_t bytes : {1, 8, 96, 97, 1000, 4096, 9000, 65536, 1 << 20}) {
    if (bytes > bytes_at_most) break;
    for (const bool request : {false, true}) {
      const int count = static_cast<int>(bytes);
      MPI_Request made = MPI_REQUEST_NULL;
      CHECK_MPI(request ? MPIX_Rget_notify(data.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, kData, window, &made)
                        : MPIX_Get_notify(data.data(), count, MPI_BYTE, next, 0, count, MPI_BYTE, kData, window));
      await(window, kData, step + 1);
      fill(step + 1);
      CHECK_MPI(MPI_Wait(&made, MPI_STATUS_IGNORE));
      CHECK_MPI(MPI_Win_flush(next, window));
      for (std::size_t i = 0; i < bytes; ++i) CHECK_EQ(data[i], check::pattern(i, next, step));
      ++step;
      tell(window, before, kRead);
      await(window, kRead, step);
    }
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void datatypes(check::Memory memory) {
  constexpr int kInts = 1 << 16;
  const check::Window window(memory, kInts * sizeof(int), sizeof(int));
  attach(window, 2);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  Steps steps(window);
  std::vector<int> data(kInts);
  const int shapes[][3] = {{3, 1, 2}, {100, 1, 3}, {1000, 2, 5}, {30, 512, 1024}, {5000, 1, 4}, {7, 1, -2}};
  for (const auto& [blocks, length, stride] : shapes) {
    MPI_Datatype type;
    CHECK_MPI(MPI_Type_vector(blocks, length, stride, MPI_INT, &type));
    CHECK_MPI(MPI_Type_commit(&type));
    const int first = stride < 0 ? -stride * blocks : 0, all = blocks * length;
    for (const bool here : {false, true}) {
      const int step = steps.next_step();
      std::iota(data.begin(), data.end(), rank * kInts + step);
      std::fill_n(window.as<int>(), kInts, -1);
      barrier();
      CHECK_MPI(MPIX_Put_notify(data.data() + (here ? first : 0), here ? 1 : all, here ? type : MPI_INT, next, first, 1,
                                type, kData, window));
      steps.received([&] {
        for (int block = 0, sent = 0; block < blocks; ++block) {
          for (int i = 0; i < length; ++i, ++sent) {
            const int at = first + block * stride + i;
            CHECK_EQ(window.as<int>()[at], before * kInts + step + (here ? at : sent));
          }
        }
        CHECK_EQ(window.as<int>()[kInts - 1], -1);
      });
      CHECK_MPI(MPI_Win_flush(next, window));
    }
    CHECK_MPI(MPI_Type_free(&type));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// Each rank adds to rank 0, whose counter says when all sums are there.
void accumulates(check::Memory memory) {
  constexpr int kSums = 700, kRounds = 12;
  const check::Window window(memory, kSums * sizeof(std::int64_t), sizeof(std::int64_t));
  attach(window, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<std::int64_t> ones(kSums, 1), seen(kSums, -1);
  for (int round = 0; round < kRounds; ++round) {
    const int count = round % 3 == 0 ? 1 : kSums;
    MPI_Request made = MPI_REQUEST_NULL;
    const auto add = [&]() -> int {
      switch (round % 4) {
        case 0:
          return MPIX_Accumulate_notify(ones.data(), count, MPI_INT64_T, 0, 0, count, MPI_INT64_T, MPI_SUM, 0, window);
        case 1:
          return MPIX_Get_accumulate_notify(ones.data(), count, MPI_INT64_T, seen.data(), count, MPI_INT64_T, 0, 0,
                                            count, MPI_INT64_T, MPI_SUM, 0, window);
        case 2:
          return MPIX_Raccumulate_notify(ones.data(), count, MPI_INT64_T, 0, 0, count, MPI_INT64_T, MPI_SUM, 0, window,
                                         &made);
        default:
          return MPIX_Rget_accumulate_notify(ones.data(), count, MPI_INT64_T, seen.data(), count, MPI_INT64_T, 0, 0,
                                             count, MPI_INT64_T, MPI_SUM, 0, window, &made);
      }
    };
    CHECK_MPI(add());
    CHECK_MPI(MPI_Wait(&made, MPI_STATUS_IGNORE));
    CHECK_MPI(MPI_Win_flush(0, window));
    if (round % 2 == 1) CHECK(seen[0] >= round * size && seen[0] < (round + 1) * size);
    if (rank == 0) {
      await(window, 0, (round + 1) * size);
      CHECK_EQ(window.as<std::int64_t>()[0], (round + 1) * size);
      CHECK_EQ(window.as<std::int64_t>()[kSums - 1], (round - round / 3) * size);
    }
    barrier();
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// A flush completes the operation at the target, and its notification: the next rank, which hears of it by a message,
// finds both. Its own calls poll nothing in between.
void flushed(check::Memory memory) {
  const int steps = most < (std::size_t{4} << 20) ? 30 : 300;
  const check::Window window(memory, kSizes.back(), 1);
  attach(window, 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<unsigned char> data(kSizes.back());
  for (int step = 1; step <= steps; ++step) {
    const int bytes = kSizes[static_cast<std::size_t>(step) % kSizes.size()];
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = check::pattern(i, rank, step);
    for (int i = 0; i < 2; ++i)
      CHECK_MPI(MPIX_Put_notify(data.data(), bytes, MPI_BYTE, next, 0, bytes, MPI_BYTE, 0, window));
    CHECK_MPI(step % 2 == 0 ? MPI_Win_flush(next, window) : MPI_Win_flush_all(window));
    CHECK_MPI(MPI_Sendrecv(nullptr, 0, MPI_BYTE, next, 0, nullptr, 0, MPI_BYTE, before, 0, MPI_COMM_WORLD,
                           MPI_STATUS_IGNORE));
    const volatile unsigned char* const here = window.as<unsigned char>();
    const auto last = static_cast<std::size_t>(bytes) - 1;
    CHECK_EQ(here[0], check::pattern(0, before, step));
    CHECK_EQ(here[last], check::pattern(last, before, step));
    CHECK_EQ(value(window, 0), 2 * step);
    barrier();
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// Bursts without flushes: a queue with room for 16, whose places are free again when their values are read.
void bursts(check::Memory memory) {
  constexpr int kPlaces = 16;
  const int total = most < (std::size_t{4} << 20) ? 100 : 2000;
  const check::Window window(memory, kPlaces * sizeof(int), sizeof(int));
  attach(window, 2);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::vector<int> items(static_cast<std::size_t>(total));
  std::iota(items.begin(), items.end(), 1);
  int sent = 0, taken = 0;
  while (sent < total || taken < total) {
    const MPI_Count read = value(window, kRead);
    for (; sent < total && sent < read + kPlaces; ++sent)
      CHECK_MPI(MPIX_Put_notify(&items[static_cast<std::size_t>(sent)], 1, MPI_INT, next, sent % kPlaces, 1, MPI_INT,
                                kData, window));
    // Operations of one origin have no order among each other, so all that are under way must be there.
    const int there = std::min(taken / kPlaces * kPlaces + kPlaces, total);
    int flag = 0;
    CHECK_MPI(MPIX_Win_test_notify(window, kData, there, &flag));
    if (flag == 0 || taken == there) sched_yield();
    for (; flag != 0 && taken < there; ++taken) {
      CHECK_EQ(window.as<int>()[taken % kPlaces], taken + 1);
      tell(window, before, kRead);
    }
  }
  await(window, kRead, total);
  CHECK_MPI(MPI_Win_unlock_all(window));
}

// In each kind of epoch, with other operations in it.
void epochs(check::Memory memory) {
  const check::Window window(memory, 64 * sizeof(int), sizeof(int));
  attach(window, 1);
  const check::Group to({next}), from({before});
  MPI_Count told = 0;
  std::array<int, 2> values{};
  const auto use = [&](int step) {
    values = {1000 * rank + step, -step};
    CHECK_MPI(MPI_Put(&values[1], 1, MPI_INT, next, 1, 1, MPI_INT, window));
    CHECK_MPI(MPIX_Put_notify(&values[0], 1, MPI_INT, next, 0, 1, MPI_INT, 0, window));
    CHECK_MPI(MPI_Put(&values[1], 1, MPI_INT, next, 2, 1, MPI_INT, window));
    await(window, 0, ++told);
    CHECK_EQ(window.as<int>()[0], 1000 * before + step);
  };
  const auto used = [&](int step) {
    CHECK_EQ(window.as<int>()[1], -step);
    CHECK_EQ(window.as<int>()[2], -step);
    barrier();
  };
  for (int step = 1; step < 40; ++step) {
    switch (step % 4) {
      case 0:
        CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
        use(step);
        CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
        break;
      case 1:
        CHECK_MPI(MPI_Win_post(from, 0, window));
        CHECK_MPI(MPI_Win_start(to, 0, window));
        use(step);
        CHECK_MPI(MPI_Win_complete(window));
        CHECK_MPI(MPI_Win_wait(window));
        break;
      default:
        CHECK_MPI(MPI_Win_lock(step % 4 == 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, next, 0, window));
        use(step);
        CHECK_MPI(MPI_Win_unlock(next, window));
        barrier();
        CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window));
        CHECK_MPI(MPI_Win_unlock(rank, window));
        break;
    }
    used(step);
  }
}

void flavors(check::Memory) {
  constexpr int kInts = 4096;
  std::vector<int> memory(kInts), data(kInts);
  std::vector<MPI_Aint> addresses(static_cast<std::size_t>(size));
  const auto works = [&](MPI_Win window, const int* base, MPI_Aint at) {
    attach(window, 2);
    CHECK_MPI(MPI_Win_lock_all(0, window));
    Steps steps(window);
    for (const int count : {1, 700, kInts}) {
      const int step = steps.next_step();
      std::iota(data.begin(), data.end(), rank + step);
      CHECK_MPI(MPIX_Put_notify(data.data(), count, MPI_INT, next, at, count, MPI_INT, kData, window));
      steps.received([&] {
        for (int i = 0; i < count; ++i) CHECK_EQ(base[i], before + step + i);
      });
      CHECK_MPI(MPI_Win_flush(next, window));
    }
    CHECK_MPI(MPI_Win_unlock_all(window));
  };
  MPI_Win window;
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_attach(window, memory.data(), kInts * sizeof(int)));
  MPI_Aint own = 0;
  CHECK_MPI(MPI_Get_address(memory.data(), &own));
  CHECK_MPI(MPI_Allgather(&own, 1, MPI_AINT, addresses.data(), 1, MPI_AINT, MPI_COMM_WORLD));
  works(window, memory.data(), addresses[static_cast<std::size_t>(next)]);
  barrier();
  CHECK_MPI(MPI_Win_detach(window, memory.data()));
  CHECK_MPI(MPI_Win_free(&window));
  MPI_Comm node = check::node_communicator();
  int together = 0;
  CHECK_MPI(MPI_Comm_size(node, &together));
  CHECK_MPI(MPI_Comm_free(&node));
  if (together < size) return;
  int* base = nullptr;
  CHECK_MPI(MPI_Win_allocate_shared(kInts * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  works(window, base, 0);
  CHECK_MPI(MPI_Win_free(&window));
}

// Makes a mistake, which one line must report.
template <class Call>
void mistake(int wanted, const char* words, Call&& call) {
  check::Stderr captured;
  const int code = call();
  const std::string text = captured.end();
  if (check::class_of(code) == wanted && text.find(words) != std::string::npos &&
      std::count(text.begin(), text.end(), '\n') == 1)
    return;
  check::fail(__FILE__, __LINE__, "class " + check::class_name(check::class_of(code)) + ", and it said: " + text);
}

void mistakes(check::Memory memory) {
  const check::Window window(memory, 64, 1);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const char byte = 1;
  const auto put = [&](int target, MPI_Aint at, int counter) {
    return MPIX_Put_notify(&byte, 1, MPI_BYTE, target, at, 1, MPI_BYTE, counter, window);
  };
  MPI_Count got = 0;
  int flag = 0;
  MPI_Request request;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  mistake(MPI_ERR_RMA_RANGE, "has 0 notification counters", [&] { return put(next, 0, 0); });
  mistake(MPI_ERR_RMA_RANGE, "has 0 notification counters", [&] { return MPIX_Win_wait_notify(window, 0, 0); });
  mistake(MPI_ERR_RMA_SYNC, "close the epoch first", [&] { return MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1); });
  CHECK_MPI(MPI_Win_unlock_all(window));
  // A wrong number is an error of one rank.
  if (rank == 0) {
    mistake(MPI_ERR_ARG, "a process has 0 to 256", [&] { return MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 257); });
  } else {
    attach(window, 1);
  }
  CHECK_MPI(MPIX_Win_get_num_notify(window, 0, &flag));
  CHECK_EQ(flag, 0);
  attach(window, 2);
  mistake(MPI_ERR_RMA_SYNC, "outside any access epoch", [&] { return put(next, 0, 0); });
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, window));
  mistake(MPI_ERR_RMA_SYNC, "outside a passive target epoch",
          [&] { return MPIX_Rput_notify(&byte, 1, MPI_BYTE, next, 0, 1, MPI_BYTE, 0, window, &request); });
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (const int counter : {-1, 2, 256}) {
    mistake(MPI_ERR_RMA_RANGE, "attach more by MPIX_Win_set_num_notify", [&] { return put(next, 0, counter); });
    mistake(MPI_ERR_RMA_RANGE, "has 2 notification counters",
            [&] { return MPIX_Win_get_notify_value(window, counter, &got); });
    mistake(MPI_ERR_RMA_RANGE, "has 2 notification counters",
            [&] { return MPIX_Win_reset_notify_value(window, counter, &got); });
    mistake(MPI_ERR_RMA_RANGE, "has 2 notification counters",
            [&] { return MPIX_Win_test_notify(window, counter, 0, &flag); });
  }
  mistake(MPI_ERR_RMA_RANGE, "beyond the 64 bytes", [&] { return put(next, 64, 0); });
  mistake(MPI_ERR_RANK, "is not in the window's group", [&] { return put(size, 0, 0); });
  mistake(MPI_ERR_RANK, "is not in the window's group", [&] { return MPIX_Win_get_num_notify(window, size, &flag); });
  CHECK_MPI(put(MPI_PROC_NULL, 0, 0));
  CHECK_MPI(MPI_Win_flush_all(window));
  barrier();
  // No mistake has notified, or put anything.
  for (const int counter : {0, 1}) CHECK_EQ(value(window, counter), 0);
  for (int i = 0; i < 64; ++i) CHECK_EQ(window.as<char>()[i], 0);
  barrier();
  CHECK_MPI(put(next, 5, 1));
  await(window, 1, 1);
  CHECK_EQ(window.as<char>()[5], 1);
  CHECK_MPI(MPI_Win_unlock_all(window));
}

void unsupported() {
  check::section("a window of the runtime");
  MPI_Win window;
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const char* const said = "the window stays with the MPI runtime";
  int counters = 0;
  mistake(MPI_ERR_UNSUPPORTED_OPERATION, said, [&] { return MPIX_Win_set_num_notify(window, MPI_INFO_NULL, 1); });
  mistake(MPI_ERR_UNSUPPORTED_OPERATION, said, [&] { return MPIX_Win_get_num_notify(window, 0, &counters); });
  mistake(MPI_ERR_UNSUPPORTED_OPERATION, said,
          [&] { return MPIX_Put_notify(nullptr, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, 0, window); });
  mistake(MPI_ERR_UNSUPPORTED_OPERATION, said, [&] { return MPIX_Win_wait_notify(window, 0, 1); });
  CHECK_MPI(MPI_Win_free(&window));
}

// Threads with counters of their own, and one counter that all of the rank before increment and all of this one reset.
void by_threads(check::Memory memory) {
  constexpr int kThreads = 4, kRounds = 300, kCommon = 2 * kThreads;
  const check::Window window(memory, kThreads * sizeof(int), sizeof(int));
  attach(window, kCommon + 1);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  std::atomic<int> resets{0};
  const auto work = [&](int thread) {
    for (int round = 1; round <= kRounds; ++round) {
      const int sent = 10 * round + rank;
      CHECK_MPI(MPIX_Put_notify(&sent, 1, MPI_INT, next, thread, 1, MPI_INT, thread, window));
      await(window, thread, round);
      CHECK_EQ(window.as<int>()[thread], 10 * round + before);
      tell(window, before, kThreads + thread);
      await(window, kThreads + thread, round);
      tell(window, next, kCommon);
      CHECK(value(window, kCommon) >= 0);
      MPI_Count taken = 0;
      CHECK_MPI(MPIX_Win_reset_notify_value(window, kCommon, &taken));
      CHECK(taken >= 0);
      resets += static_cast<int>(taken);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  CHECK_MPI(MPI_Win_flush_all(window));
  barrier();
  MPI_Count rest = 0;
  CHECK_MPI(MPIX_Win_reset_notify_value(window, kCommon, &rest));
  CHECK_EQ(resets + rest, kThreads * kRounds);
  CHECK_MPI(MPI_Win_unlock_all(window));
}

constexpr check::Section<check::Memory> kSections[] = {
    {"counters", counters},
    {"puts of each size", sizes},
    {"gets", gets},
    {"datatypes with gaps", datatypes},
    {"accumulates", accumulates},
    {"flushes", flushed},
    {"bursts", bursts},
    {"each kind of epoch", epochs},
    {"dynamic and shared windows", flavors},
    {"mistakes", mistakes},
};

}  // namespace

int main(int argc, char** argv) {
  const bool threads = argc > 1 && std::string_view(argv[1]) == "threads";
  check::Program program(argc, argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  CHECK(MPIX_Put_notify != nullptr);
  rank = check::rank();
  size = check::size();
  next = (rank + 1) % size;
  before = (rank + size - 1) % size;
  if (program.has("short")) most = 10'000;
  if (program.has("unsupported")) {
    unsupported();
  } else if (threads) {
    int level = MPI_THREAD_SINGLE;
    CHECK_MPI(MPI_Query_thread(&level));
    if (level < MPI_THREAD_MULTIPLE) return check::kSkipped;
    check::section("threads");
    by_threads(program.memory());
  } else {
    const std::size_t run = std::size(kSections) - (program.has("short") ? 1 : 0);
    check::run(std::vector(kSections, kSections + run), program.memory());
  }
  return 0;
}
