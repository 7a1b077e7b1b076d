// SPDX-License-Identifier: BSD-3-Clause
// The system resources that this process uses, for programs that must leave them unchanged.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <string>

#include "check.hpp"

namespace check {

struct Usage {
  std::int64_t descriptors = 0;
  std::int64_t mappings = 0;
  std::int64_t threads = 0;
  std::int64_t kilobytes = 0;  // resident
  std::int64_t peak = 0;       // of kilobytes
  std::int64_t heap = 0;       // KiB allocated by malloc
};

inline Usage usage() {
  Usage now;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++now.descriptors;
  bool thread_sanitizer = false;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line); ++now.mappings)
    thread_sanitizer = thread_sanitizer || line.find("/libtsan.so") != std::string::npos;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) now.kilobytes = std::strtoll(line.c_str() + 6, nullptr, 10);
    if (line.starts_with("VmHWM:")) now.peak = std::strtoll(line.c_str() + 6, nullptr, 10);
    if (line.starts_with("Threads:")) now.threads = std::strtoll(line.c_str() + 8, nullptr, 10);
  }
  if (thread_sanitizer) now.mappings = now.kilobytes = 0;  // most are its notes of the program's memory
  const struct mallinfo2 heap = mallinfo2();
  now.heap = static_cast<std::int64_t>((heap.uordblks + heap.hblkhd) >> 10);
  return now;
}

// Checks for the same number of threads, no more descriptors, and at most `more` of the other resources. There may be
// fewer descriptors: if two ranks connect to each other at once, one of the two connections is closed some time later.
inline void same_usage(const Usage& before, const Usage& after, const Usage& more) {
  if (after.descriptors > before.descriptors) CHECK_EQ(after.descriptors, before.descriptors);
  CHECK_EQ(after.threads, before.threads);
  if (after.mappings > before.mappings + more.mappings) CHECK_EQ(after.mappings, before.mappings);
  if (after.kilobytes > before.kilobytes + more.kilobytes) CHECK_EQ(after.kilobytes, before.kilobytes);
  if (after.heap > before.heap + more.heap) CHECK_EQ(after.heap, before.heap);
}

}  // namespace check
