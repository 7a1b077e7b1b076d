// SPDX-License-Identifier: BSD-3-Clause
// Errors of reads and writes of another process's private memory.
#include "transport/node/process_memory.hpp"

#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/processes.hpp"
#include "transport/process.hpp"

namespace farside::process_memory_test {

using namespace farside::testing;

namespace {

constexpr std::size_t kPage = 4096;

struct Offer {
  std::int32_t pid;
  std::uint64_t address;
};

bool is_peer_error(const Status& status, pid_t pid, ErrorKind kind = ErrorKind::kRange) {
  return !status.ok() && status.error().kind == kind &&
         status.error().text.find(fmt::format("process {}", pid)) != std::string::npos;
}

}  // namespace

TEST_CASE("an address that is not there is an error of the peer, not a crash", "[native]") {
  expect_well(run_processes(2, [](Ranks& ranks) {
    Process::instance().peer_permission().need();
    auto* pages =
        static_cast<std::byte*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(pages + kPage, kPage);
    mprotect(pages + 2 * kPage, kPage, PROT_READ);
    const auto offers = ranks.all_gather(Offer{getpid(), reinterpret_cast<std::uint64_t>(pages)});
    const auto [pid, address] = offers[1 - static_cast<std::size_t>(ranks.rank())];
    std::vector<std::byte> local(2 * kPage);
    ranks.check(is_peer_error(read_process_memory(pid, 0, local.data(), 8), pid), "null");
    ranks.check(is_peer_error(read_process_memory(pid, UINT64_MAX - 7, local.data(), 8), pid), "the last bytes");
    ranks.check(is_peer_error(read_process_memory(pid, address + kPage, local.data(), 8), pid), "unmapped");
    ranks.check(is_peer_error(read_process_memory(pid, address + kPage - 8, local.data(), 16), pid), "half");
    ranks.check(is_peer_error(write_process_memory(pid, address + kPage - 8, local.data(), 16), pid), "half");
    ranks.check(is_peer_error(write_process_memory(pid, address + 2 * kPage, local.data(), 8), pid), "read-only");
    ranks.check(read_process_memory(pid, address, local.data(), kPage).ok(), "the rest still works");
    ranks.barrier();
  }));
}

TEST_CASE("a process that is gone is an error of the peer", "[native]") {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  std::uint64_t word = 0;
  const Status status = read_process_memory(child, reinterpret_cast<std::uint64_t>(&word), &word, sizeof word);
  REQUIRE(is_peer_error(status, child, ErrorKind::kPeer));
  CHECK(status.error().text.find("No such process") != std::string::npos);
}

}  // namespace farside::process_memory_test
