// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "tools/bench/program/measuring.hpp"
#include "transport/base/pause.hpp"

namespace farside::bench {
namespace {

// Each word has two cache lines of its own, since processors fetch lines in pairs.
struct Page {
  struct alignas(128) Word {
    std::atomic<std::uint64_t> value;
  };
  Word lock, data, asked, answered;
};
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

// Memory that both ranks of the pair map. Throws at both ranks if they cannot.
class SharedMemory {
 public:
  SharedMemory(const Pair& pair, std::size_t bytes) : bytes_(bytes) {
    std::array<char, 64> name{};
    int file = -1;
    if (pair.origin) {
      std::snprintf(name.data(), name.size(), "/farside-bench-%ld", static_cast<long>(getpid()));
      file = shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL, 0600);
      if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) close(std::exchange(file, -1));
    }
    name = of_rank(0, name, pair.comm);
    if (!pair.origin) file = shm_open(name.data(), O_RDWR, 0);
    void* mapped = MAP_FAILED;
    if (file >= 0) {
      mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      close(file);
    }
    const bool good = tools::at_all(mapped != MAP_FAILED, pair.comm);
    if (pair.origin) shm_unlink(name.data());
    if (!good && mapped != MAP_FAILED) munmap(mapped, bytes);
    if (!good) throw std::runtime_error("the two ranks share no memory");
    memory_ = mapped;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  void* get() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

// Returns the next value of the word, for which it polls.
std::uint64_t wait_for_more(const std::atomic<std::uint64_t>& word, std::uint64_t seen) {
  constexpr int kSpins = 1000;
  for (int round = 0;; ++round) {
    const std::uint64_t now = word.load(std::memory_order_acquire);
    if (now != seen) return now;
    if (round < kSpins)
      relax();
    else
      sched_yield();
  }
}

Outcome measure_words(BareMemory what, const Pair& pair, const Options& options) {
  Outcome outcome;
  const SharedMemory shared(pair, sizeof(Page));
  Page& page = *static_cast<Page*>(shared.get());
  if (pair.origin) {
    std::uint64_t done = 0;
    outcome.values = sample(options.sample_seconds, [&] {
      if (what == BareMemory::kLock) {
        page.lock.value.fetch_add(1);
        page.data.value.store(done, std::memory_order_relaxed);
        page.lock.value.fetch_sub(1);
      } else {
        page.asked.value.fetch_add(1);
        wait_for_more(page.answered.value, done);
      }
      ++done;
    });
    page.asked.value.store(kEnd);
  } else if (what == BareMemory::kExchange) {
    for (std::uint64_t seen = 0; (seen = wait_for_more(page.asked.value, seen)) != kEnd;)
      page.answered.value.fetch_add(1);
  }
  MPI_Barrier(pair.comm);
  return outcome;
}

Outcome measure_copy(std::size_t bytes, const Pair& pair, const Options& options) {
  Outcome outcome;
  const SharedMemory shared(pair, bytes);
  std::vector<char> here(bytes, 'x');
  if (pair.origin) {
    outcome.values = sample(options.sample_seconds, [&] {
      std::memcpy(shared.get(), here.data(), bytes);
      asm volatile("" ::: "memory");  // keeps the compiler from removing a copy
    });
  }
  MPI_Barrier(pair.comm);
  const bool arrived = std::memcmp(shared.get(), here.data(), bytes) == 0;
  if (!of_rank(1, arrived, pair.comm)) outcome.wrong = "what was copied did not arrive";
  return outcome;
}

}  // namespace

Outcome measure_bare_memory(BareMemory what, std::size_t bytes, const MeasureInfo& info, const Pair& pair,
                            const Options& options) {
  Outcome outcome;
  try {
    switch (what) {
      case BareMemory::kLock:
      case BareMemory::kExchange: outcome = measure_words(what, pair, options); break;
      case BareMemory::kCopy: outcome = measure_copy(bytes, pair, options); break;
    }
  } catch (const std::runtime_error& error) {
    outcome.wrong = error.what();
  }
  outcome.values = in_unit(info, bytes, std::move(outcome.values));
  return outcome;
}

}  // namespace farside::bench
