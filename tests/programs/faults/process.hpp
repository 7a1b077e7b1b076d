// SPDX-License-Identifier: BSD-3-Clause
// A provider that reports errors; processes without access to each other.
#pragma once

#include <dlfcn.h>
#include <linux/capability.h>
#include <numeric>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>

#include "../stderr.hpp"
#include "common.hpp"

namespace faults {

// Operations of rank 0 on rank 1 fail before a synchronization that tells their target: all ranks of a fence, and the
// target of a complete, get an error as well.
inline void errors_at_targets(const check::Program& program) {
  const auto fail = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "faulty_fabric_fail"));
  const auto failed = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "faulty_fabric_failed"));
  static const std::vector<std::int64_t> values(2000, 5);  // too many to wait for the release
  const int count = static_cast<int>(values.size());
  const check::Window window(program.memory(), 8 * count, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const auto put = [&] {
    if (check::rank() != 0) return;
    const int before = failed();
    fail(100);
    CHECK_MPI(MPI_Put(values.data(), count, MPI_INT64_T, 1, 0, count, MPI_INT64_T, window));
    while (failed() == before) std::this_thread::yield();
    fail(0);
  };
  const auto fails = [&](auto&& call) {
    check::Stderr captured;
    const int code = check::class_of(call());
    const std::string text = captured.end();
    CHECK_EQ(code, MPI_ERR_OTHER);
    CHECK(text.find(check::rank() == 0 ? "target 1: libfabric " : "operations of rank 0 on this window have failed") !=
          std::string::npos);
  };
  CHECK_MPI(MPI_Win_fence(0, window));
  put();
  fails([&] { return MPI_Win_fence(0, window); });
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
  for (const bool tests : {false, true}) {
    if (check::rank() == 0) {
      CHECK_MPI(MPI_Win_start(check::Group({1}), 0, window));
      put();
      fails([&] { return MPI_Win_complete(window); });
    } else if (check::rank() == 1) {
      int flag = 0, code = MPI_SUCCESS;
      CHECK_MPI(MPI_Win_post(check::Group({0}), 0, window));
      fails([&] {
        while (tests && code == MPI_SUCCESS && flag == 0) code = MPI_Win_test(window, &flag);
        return tests ? code : MPI_Win_wait(window);
      });
    }
  }
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, window));
}

inline int errors(const check::Program& program) {
  check::section("operations that fail");
  const auto fail = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "faulty_fabric_fail"));
  CHECK(fail != nullptr);
  const check::Window window(program.memory(), kBytes, 8);
  CHECK_MPI(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
  const int target = (check::rank() + 1) % check::size();
  constexpr std::int64_t kRounds = 200;
  const std::int64_t one = 1;
  enum Kind { kPut, kGet, kFetchAndOp, kAccumulate, kKinds };
  std::array<std::int64_t, kKinds> failures{};
  // Whether the call and its flush succeeded; at most one of them may report an error.
  const auto went_well = [&](Kind kind, int code) {
    const int flushed = MPI_Win_flush(target, window);
    CHECK(code == MPI_SUCCESS || flushed == MPI_SUCCESS);
    const bool well = code == MPI_SUCCESS && flushed == MPI_SUCCESS;
    failures[kind] += well ? 0 : 1;
    return well;
  };
  CHECK_MPI(MPI_Win_lock_all(0, window));
  check::Stderr captured;
  fail(10);
  for (std::int64_t value = 1; value <= kRounds; ++value) {
    std::int64_t seen = 0, before = -1;
    went_well(kPut, MPI_Put(&value, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window));
    if (went_well(kGet, MPI_Get(&seen, 1, MPI_INT64_T, target, 1, 1, MPI_INT64_T, window))) CHECK_EQ(seen, value);
    if (went_well(kFetchAndOp, MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window)))
      CHECK_EQ(before, value - 1);
    went_well(kAccumulate, MPI_Accumulate(&one, 1, MPI_INT64_T, target, 2, 1, MPI_INT64_T, MPI_SUM, window));
  }
  fail(0);
  CHECK_MPI(MPI_Win_unlock_all(window));
  const std::string text = captured.end();
  std::int64_t told = 0;
  const std::string named = "target " + std::to_string(target) + ": libfabric ";
  for (std::size_t at = 0; (at = text.find(named, at)) != std::string::npos; ++at) ++told;
  for (const std::int64_t each : failures) CHECK(each > 0);
  const std::int64_t failed = std::accumulate(failures.begin(), failures.end(), std::int64_t{0});
  if (told != failed) std::fputs(text.c_str(), stderr);
  CHECK_EQ(told, failed);
  // The provider has carried out all operations, whatever it reported.
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check::rank(), 0, window));
  for (int word = 0; word < 3; ++word) CHECK_EQ(window.as<std::int64_t>()[word], kRounds);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  check::section("failed operations before synchronization");
  errors_at_targets(program);
  if (check::rank() == 0)
    std::printf("%lld errors in %lld operations of rank 0\n", static_cast<long long>(failed),
                static_cast<long long>(4 * kRounds));
  return 0;
}

// Operations by system calls, messages, and both, to the next rank.
inline void operate(const check::Window& window, std::int64_t rounds) {
  constexpr int kMany = 2000;
  const int target = (check::rank() + 1) % check::size();
  const std::vector<std::int64_t> ones(kMany, 1);
  std::vector<std::int64_t> got(2 * kMany);
  MPI_Datatype strided;
  CHECK_MPI(MPI_Type_vector(300, 1, 2, MPI_INT64_T, &strided));
  CHECK_MPI(MPI_Type_commit(&strided));
  CHECK_MPI(MPI_Win_lock_all(0, window));
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t before = -1;
    CHECK_MPI(MPI_Fetch_and_op(ones.data(), &before, MPI_INT64_T, target, 0, MPI_SUM, window));
    CHECK_MPI(MPI_Accumulate(ones.data(), kMany, MPI_INT64_T, target, 1, kMany, MPI_INT64_T, MPI_SUM, window));
    CHECK_MPI(MPI_Put(ones.data(), 1, MPI_INT64_T, target, 2100, 1, MPI_INT64_T, window));
    CHECK_MPI(MPI_Put(ones.data(), 1, strided, target, 2200, 1, strided, window));
    CHECK_MPI(MPI_Put(ones.data(), kMany, MPI_INT64_T, target, 3000, kMany, MPI_INT64_T, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(before, round);
    CHECK_MPI(MPI_Get(got.data(), kMany, MPI_INT64_T, target, 1, kMany, MPI_INT64_T, window));
    CHECK_MPI(MPI_Get(got.data() + kMany, 1, strided, target, 2200, 1, strided, window));
    CHECK_MPI(MPI_Win_flush(target, window));
    CHECK_EQ(got[kMany - 1], round + 1);
    CHECK_EQ(got[kMany + 598], std::int64_t{1});
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, check::rank(), 0, window));
  for (const std::size_t at : {2100, 2200, 2798, 3000, 3000 + kMany - 1})
    CHECK_EQ(window.as<std::int64_t>()[at], std::int64_t{1});
  CHECK_EQ(window.as<std::int64_t>()[0], rounds);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
}

inline constexpr MPI_Aint kOperated = 8 * 6000;

inline int undumpable(const check::Program& program) {
  const check::Window window(program.memory(), kOperated, 8);
  // With CAP_SYS_PTRACE a process may access others that are not dumpable.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  CHECK_EQ(syscall(SYS_capset, &header, none), 0L);
  CHECK_EQ(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  check::section("a window from before the process is not dumpable");
  operate(window, 10);
  check::section("a window from afterwards");
  const check::Window other(check::Memory::kAllocate, 64, 8);
  const std::int64_t one = 1;
  CHECK_MPI(MPI_Win_fence(0, other));
  CHECK_MPI(MPI_Put(&one, 1, MPI_INT64_T, (check::rank() + 1) % check::size(), 3, 1, MPI_INT64_T, other));
  CHECK_MPI(MPI_Win_fence(0, other));
  CHECK_EQ(other.as<std::int64_t>()[3], one);
  return 0;
}

}  // namespace faults
