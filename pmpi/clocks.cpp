// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/clocks.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <string>

#include "transport/base/ticks.hpp"

namespace farside::pmpi {
namespace {

constexpr int kRoundTrips = 32;

std::mutex mutex;
bool compared = false;
std::vector<TraceRecord>& found() {
  static auto* const records = new std::vector<TraceRecord>();
  return *records;
}

struct Offset {
  std::int64_t ahead = 0;                              // of the peer's clock, in nanoseconds
  std::uint64_t uncertain = ~std::uint64_t{0};
};

// With the peer's answer_clock().
Offset ask_clock(MPI_Comm communicator, int peer) {
  Offset best;
  for (int i = 0; i < kRoundTrips; ++i) {
    std::uint64_t theirs = 0;
    const std::uint64_t before = monotonic_ns();
    PMPI_Sendrecv(&before, 1, MPI_UINT64_T, peer, 0, &theirs, 1, MPI_UINT64_T, peer, 0, communicator, MPI_STATUS_IGNORE);
    const std::uint64_t trip = monotonic_ns() - before;
    if (trip / 2 >= best.uncertain) continue;
    best = {static_cast<std::int64_t>(theirs - before - trip / 2), trip / 2};
  }
  return best;
}

void answer_clock(MPI_Comm communicator, int peer) {
  for (int i = 0; i < kRoundTrips; ++i) {
    std::uint64_t theirs = 0;
    PMPI_Recv(&theirs, 1, MPI_UINT64_T, peer, 0, communicator, MPI_STATUS_IGNORE);
    const std::uint64_t now = monotonic_ns();
    PMPI_Send(&now, 1, MPI_UINT64_T, peer, 0, communicator);
  }
}

}  // namespace

std::uint64_t clock_id() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  std::array<char, 64> space{};
  if (const ssize_t length = readlink("/proc/self/ns/time", space.data(), space.size()); length > 0) {
    text.append(space.data(), static_cast<std::size_t>(length));
  }
  std::uint64_t value = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

bool clock_is_known() {
  const std::scoped_lock held(mutex);
  return compared;
}

void compare_clocks(MPI_Comm communicator) {
  MPI_Comm own = MPI_COMM_NULL;
  if (PMPI_Comm_dup(communicator, &own) != MPI_SUCCESS) return;
  int rank = 0, ranks = 1;
  PMPI_Comm_rank(own, &rank);
  PMPI_Comm_size(own, &ranks);
  const std::uint64_t mine = clock_id();
  std::vector<std::uint64_t> clocks(static_cast<std::size_t>(ranks));
  PMPI_Allgather(&mine, 1, MPI_UINT64_T, clocks.data(), 1, MPI_UINT64_T, own);
  std::vector<std::uint64_t> done{clocks[0]};
  for (int peer = 1; peer < ranks; ++peer) {
    const std::uint64_t clock = clocks[static_cast<std::size_t>(peer)];
    if (std::find(done.begin(), done.end(), clock) != done.end()) continue;
    done.push_back(clock);
    if (rank == 0) answer_clock(own, peer);
    if (rank != peer) continue;
    const Offset offset = ask_clock(own, 0);
    TraceRecord record;
    record.kind = TraceKind::kClock;
    record.granted = clocks[0];
    record.begin = static_cast<std::uint64_t>(offset.ahead);
    record.end = offset.uncertain;
    const std::scoped_lock held(mutex);
    found().push_back(record);
  }
  PMPI_Comm_free(&own);
  const std::scoped_lock held(mutex);
  compared = true;
}

std::vector<TraceRecord> known_clocks() {
  const std::scoped_lock held(mutex);
  return found();
}

}  // namespace farside::pmpi
