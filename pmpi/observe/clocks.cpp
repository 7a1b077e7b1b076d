// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/observe/clocks.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/log.hpp"
#include "transport/base/ticks.hpp"

namespace farside::pmpi {
namespace {

std::optional<ClockOffset> ask_clock(MPI_Comm communicator, int peer) {
  return compare_clock([&](std::uint64_t mine, std::uint64_t& theirs) {
    return runtime().Sendrecv(&mine, 1, MPI_UINT64_T, peer, 0, &theirs, 1, MPI_UINT64_T, peer, 0, communicator,
                              MPI_STATUS_IGNORE) == MPI_SUCCESS;
  });
}

bool answer_clock_of(MPI_Comm communicator, int peer) {
  const auto receive = [&](std::uint64_t& theirs) {
    return runtime().Recv(&theirs, 1, MPI_UINT64_T, peer, 0, communicator, MPI_STATUS_IGNORE) == MPI_SUCCESS;
  };
  const auto send = [&](std::uint64_t mine) {
    return runtime().Send(&mine, 1, MPI_UINT64_T, peer, 0, communicator) == MPI_SUCCESS;
  };
  return answer_clock(receive, send);
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
  const std::scoped_lock held(library().observed->mutex);
  return library().observed->clocks_compared;
}

namespace {

// Returns false if the runtime fails; some clocks are then unknown.
bool compare_on(MPI_Comm own) {
  int rank = 0, ranks = 1;
  if (runtime().Comm_rank(own, &rank) != MPI_SUCCESS || runtime().Comm_size(own, &ranks) != MPI_SUCCESS) return false;
  const std::uint64_t mine = clock_id();
  std::vector<std::uint64_t> clocks(static_cast<std::size_t>(ranks));
  if (runtime().Allgather(&mine, 1, MPI_UINT64_T, clocks.data(), 1, MPI_UINT64_T, own) != MPI_SUCCESS) return false;
  std::vector<std::uint64_t> done{clocks[0]};
  for (int peer = 1; peer < ranks; ++peer) {
    const std::uint64_t clock = clocks[static_cast<std::size_t>(peer)];
    if (std::find(done.begin(), done.end(), clock) != done.end()) continue;
    done.push_back(clock);
    if (rank == 0 && !answer_clock_of(own, peer)) return false;
    if (rank != peer) continue;
    const std::optional<ClockOffset> offset = ask_clock(own, 0);
    if (!offset) return false;
    TraceRecord record;
    record.kind = TraceKind::kClock;
    record.granted = clocks[0];
    record.begin = static_cast<std::uint64_t>(offset->ahead);
    record.end = offset->uncertain;
    const std::scoped_lock held(library().observed->mutex);
    library().observed->clocks.push_back(record);
  }
  return true;
}

}  // namespace

// A trace is useful without the offsets, so a failure is a warning and no error of the window.
void compare_clocks(MPI_Comm communicator) {
  MPI_Comm own = MPI_COMM_NULL;
  const bool made = runtime().Comm_dup(communicator, &own) == MPI_SUCCESS;
  if (!made || !compare_on(own)) {
    log(LogLevel::kWarn,
        "the runtime failed while clocks were compared: in the trace the times of some nodes may not agree");
  }
  if (!made) return;
  // A failure only loses memory.
  (void)runtime().Comm_free(&own);
  const std::scoped_lock held(library().observed->mutex);
  library().observed->clocks_compared = true;
}

std::vector<TraceRecord> known_clocks() {
  const std::scoped_lock held(library().observed->mutex);
  return library().observed->clocks;
}

}  // namespace farside::pmpi
