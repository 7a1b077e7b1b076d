// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/bare_memory.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <sched.h>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench/sampler.hpp"
#include "transport/base/relax.hpp"

namespace farside::bench {
namespace {

// Each in cache lines of its own; two, as processors fetch lines in pairs.
struct Page {
  struct alignas(128) Word {
    std::atomic<std::uint64_t> value;
  };
  Word lock, data, asked, answered;
};
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

// A page that both ranks of the pair map; null at both if they cannot.
class SharedPage {
 public:
  explicit SharedPage(const Pair& pair) {
    std::array<char, 64> name{};
    int file = -1;
    if (pair.origin) {
      std::snprintf(name.data(), name.size(), "/farside-bench-%ld", static_cast<long>(getpid()));
      file = shm_open(name.data(), O_RDWR | O_CREAT | O_EXCL, 0600);
      if (file >= 0 && ftruncate(file, sizeof(Page)) != 0) close(std::exchange(file, -1));
    }
    MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, pair.comm);
    if (!pair.origin) file = shm_open(name.data(), O_RDWR, 0);
    void* mapped = MAP_FAILED;
    if (file >= 0) {
      mapped = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      close(file);
    }
    int good = mapped != MAP_FAILED ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_LAND, pair.comm);
    if (pair.origin) shm_unlink(name.data());
    if (good == 0 && mapped != MAP_FAILED) munmap(std::exchange(mapped, MAP_FAILED), sizeof(Page));
    if (mapped != MAP_FAILED) page_ = static_cast<Page*>(mapped);
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() {
    if (page_ != nullptr) munmap(page_, sizeof(Page));
  }
  Page* get() const { return page_; }

 private:
  Page* page_ = nullptr;
};

// The word's next value.
std::uint64_t wait_for_more(const std::atomic<std::uint64_t>& word, std::uint64_t seen) {
  constexpr int kSpins = 1000;
  for (int round = 0;; ++round) {
    const std::uint64_t now = word.load(std::memory_order_acquire);
    if (now != seen) return now;
    if (round < kSpins) {
      relax();
    } else {
      sched_yield();
    }
  }
}

}  // namespace

Outcome measure_bare(BareMemory what, const Pair& pair, const Options& options) {
  Outcome outcome;
  const SharedPage shared(pair);
  if (shared.get() == nullptr) {
    outcome.wrong = "the two ranks share no memory";
    return outcome;
  }
  Page& page = *shared.get();
  if (pair.origin) {
    std::uint64_t done = 0;
    outcome.values = sample_microseconds(options.sample_seconds, [&] {
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
    for (std::uint64_t seen = 0; (seen = wait_for_more(page.asked.value, seen)) != kEnd;) page.answered.value.fetch_add(1);
  }
  MPI_Barrier(pair.comm);
  return outcome;
}

}  // namespace farside::bench
