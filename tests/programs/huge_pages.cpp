// SPDX-License-Identifier: BSD-3-Clause
// The pages of large windows, as /proc/self/smaps shows them. With FARSIDE_HUGE_PAGES=transparent large windows ask for
// huge pages, and other windows do not. Where the kernel gives none to shared memory, a line says so once, and
// MADV_COLLAPSE shows that the memory is ready for them.
//
//   huge_pages             with the environment's FARSIDE_HUGE_PAGES
//   huge_pages measure     the time of random gets of 8 bytes from 1 GiB, in small pages and in huge pages (2 ranks)
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <sys/mman.h>

#include "stderr.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace {

constexpr const char* kFolder = "/sys/kernel/mm/transparent_hugepage/";

std::size_t huge_page() {
  std::size_t page = 0;
  std::ifstream(std::string(kFolder) + "hpage_pmd_size") >> page;
  return page;
}

// Whether shared memory that asks for huge pages gets them at its first use.
bool given_at_first_use() {
  std::string line;
  std::getline(std::ifstream(std::string(kFolder) + "shmem_enabled"), line);
  for (const char* const word : {"[always]", "[within_size]", "[advise]", "[force]"})
    if (line.find(word) != std::string::npos) return true;
  return false;
}

struct Pages {
  long in_memory = 0, huge = 0;  // KiB that this process has mapped
  bool asks = false;             // for huge pages
};

// What is known of the mapping at this address.
Pages pages_at(const void* base) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  Pages pages;
  bool here = false;
  std::ifstream smaps("/proc/self/smaps");
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= address && address < end;
    if (!here) continue;
    if (line.starts_with("Rss:")) pages.in_memory = std::stol(line.substr(4));
    if (line.starts_with("ShmemPmdMapped:")) pages.huge = std::stol(line.substr(15));
    if (line.starts_with("VmFlags:")) pages.asks = line.find(" hg") != std::string::npos;
  }
  return pages;
}

// The kernel tells the caller to try again while it is short of huge pages or another user holds a small page.
bool collapse(void* base, std::size_t bytes) {
  for (int tries = 0; tries < 20; ++tries) {
    if (madvise(base, bytes, MADV_COLLAPSE) == 0) return true;
    if (errno != EAGAIN) break;
  }
  std::printf("rank %d: no huge pages by MADV_COLLAPSE: %s\n", check::rank(), std::strerror(errno));
  return false;
}

void put_and_get(const check::Window& window, std::size_t bytes) {
  const int next = (check::rank() + 1) % check::size();
  const auto last = static_cast<MPI_Aint>(bytes) - 8;
  const std::int64_t value = 100 + next;
  std::int64_t seen = 0;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window));
  CHECK_MPI(MPI_Put(&value, 1, MPI_INT64_T, next, last, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_flush(next, window));
  CHECK_MPI(MPI_Get(&seen, 1, MPI_INT64_T, next, last, 1, MPI_INT64_T, window));
  CHECK_MPI(MPI_Win_unlock(next, window));
  CHECK_EQ(seen, value);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

void large_window(bool wanted) {
  const std::size_t page = huge_page(), bytes = 12 * page + 8;
  const long kib = static_cast<long>(12 * page / 1024);
  for (int round = 0; round < 2; ++round) {
    char* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;
    check::Stderr captured;
    CHECK_MPI(MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    const std::string text = captured.end();
    const bool warned = text.find("FARSIDE_HUGE_PAGES: windows get normal pages") != std::string::npos;
    if (check::rank() == 0) CHECK_EQ(warned, wanted && !given_at_first_use() && round == 0);
    Pages pages = pages_at(base);
    CHECK_EQ(pages.asks, wanted);
    CHECK(pages.in_memory <= 64);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (wanted) CHECK_EQ(reinterpret_cast<std::uintptr_t>(base) % page, std::uintptr_t{0});
    std::memset(base, 1, bytes);
    pages = pages_at(base);
    CHECK(pages.in_memory >= kib);
    if (!wanted) {
      CHECK_EQ(pages.huge, 0L);
    } else if (given_at_first_use() || collapse(base, 12 * page)) {
      pages = pages_at(base);
      CHECK(pages.huge >= kib);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    CHECK_MPI(MPI_Win_free(&window));
  }
  put_and_get(check::Window(check::Memory::kAllocate, static_cast<MPI_Aint>(bytes), 1), bytes);
}

void small_window() {
  const check::Window window(check::Memory::kAllocate, 1 << 20, 1);
  CHECK(!pages_at(window.as<char>()).asks);
  put_and_get(window, 1 << 20);
}

double processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// The best of five, in ns of this thread's processor time per get: other processes count only for the caches.
double random_gets(MPI_Win window, std::size_t bytes) {
  constexpr int kGets = 2000000, kTogether = 16;
  std::uint64_t random = 88172645463325252U, into[kTogether];
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    const double begin = processor_ns();
    for (int i = 0; i < kGets; ++i) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      const auto at = static_cast<MPI_Aint>(random % (bytes / 8) * 8);
      CHECK_MPI(MPI_Get(&into[i % kTogether], 8, MPI_BYTE, 1, at, 8, MPI_BYTE, window));
      if (i % kTogether == kTogether - 1) CHECK_MPI(MPI_Win_flush(1, window));
    }
    best = std::min(best, (processor_ns() - begin) / kGets);
  }
  return best;
}

void measure() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const auto begin = std::chrono::steady_clock::now();
  CHECK_MPI(MPI_Win_allocate(check::rank() == 1 ? kBytes : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
  const std::chrono::duration<double, std::milli> made = std::chrono::steady_clock::now() - begin;
  if (check::rank() == 1) std::memset(base, 1, kBytes);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  // Where the other's memory is mapped here: the only mapping of that size.
  std::byte* there = nullptr;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2 && to - from >= kBytes &&
        line.find("memfd:farside") != std::string::npos)
      there = reinterpret_cast<std::byte*>(to - kBytes);  // NOLINT(performance-no-int-to-ptr)
  }
  for (const bool collapsed : {false, true}) {
    // What remains in small pages is shown.
    if (collapsed && there != nullptr && check::rank() == 1) collapse(there, kBytes);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (collapsed && there != nullptr && check::rank() == 0) collapse(there, kBytes);
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check::rank() == 0) {
      const double time = random_gets(window, kBytes);
      std::printf("window made in %.1f ms; %s: %ld of %ld MiB in huge pages, %.1f ns per get\n", made.count(),
                  collapsed ? "after MADV_COLLAPSE" : "as touched", pages_at(there).huge / 1024,
                  pages_at(there).in_memory / 1024, time);
    }
    CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Win_free(&window));
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("measure")) {
    measure();
    return 0;
  }
  if (huge_page() == 0 || huge_page() > (std::size_t{4} << 20)) {
    if (check::rank() == 0) std::printf("huge_pages: skipped: this kernel has no huge pages of up to 4 MiB\n");
    MPI_Finalize();
    std::exit(77);
  }
  const char* const setting = std::getenv("FARSIDE_HUGE_PAGES");
  check::section("a large window");
  large_window(setting != nullptr && std::string(setting) == "transparent");
  check::section("a small window");
  small_window();
}
