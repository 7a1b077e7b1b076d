// SPDX-License-Identifier: BSD-3-Clause
// A RemoteMemory whose operations take effect at once, or fail: for tests of what a protocol does after a failure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "transport/base/remote_memory.hpp"
#include "transport/base/result.hpp"

namespace farside::epochs {

// The words of all ranks.
struct Words {
  std::map<std::pair<int, std::uint32_t>, std::uint64_t> words;
  std::uint64_t& at(int rank, std::uint32_t word) { return words[{rank, word}]; }
};

// The memory of one rank. `fails` selects failing operations by rank and word.
class FailingMemory {
 public:
  class Operation {
   public:
    bool done() const { return !failed_; }
    bool failed() const { return failed_; }
    std::uint64_t value() const { return value_; }
    Status take_error() {
      failed_ = false;
      return Error{ErrorKind::kPeer, "lost"};
    }

   private:
    friend class FailingMemory;
    bool failed_ = false;
    std::uint64_t value_ = 0;
  };

  using Near = FailingMemory;
  Near& near() { return *this; }
  FailingMemory(Words& words, int rank) : words_(words), rank_(rank) {}
  std::function<bool(int, std::uint32_t)> fails = [](int, std::uint32_t) { return false; };
  // Selects notifications that have no effect, and no error either.
  std::function<bool(int, std::uint32_t)> loses = [](int, std::uint32_t) { return false; };
  // Whether notifications of the rank may be lost.
  std::function<bool(int)> interrupted = [](int) { return false; };
  // The targets of the steps that end the access to their data, and of all steps.
  std::vector<int> ended, reached;

  void fetch_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value,
                 DataAccess access = DataAccess::kGoesOn) {
    if (access == DataAccess::kEnds) ended.push_back(rank);
    if (begin(operation, rank, word)) words_.at(rank, word) += value;
  }
  void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t expected,
                        std::uint64_t desired) {
    if (begin(operation, rank, word) && operation.value_ == expected) words_.at(rank, word) = desired;
  }
  void read(Operation& operation, int rank, std::uint32_t word) { begin(operation, rank, word); }
  void read(Operation& operation, int rank, std::uint32_t word, std::span<std::uint64_t> values) {
    for (std::uint64_t& value : values) {
      if (!begin(operation, rank, word)) return;
      value = operation.value_;
      word += sizeof value;
    }
  }
  void add_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    Operation unasked;
    fetch_add(unasked, rank, word, value);
  }
  void write_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    Operation unasked;
    write(unasked, rank, word, value);
  }
  void notify_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess access) {
    if (!loses(rank, word)) fetch_add(operation, rank, word, value, access);
  }
  void notify_write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess access) {
    if (access == DataAccess::kEnds) ended.push_back(rank);
    if (!loses(rank, word)) write(operation, rank, word, value);
  }
  bool interrupted_since(int rank, std::uint32_t) const { return interrupted(rank); }
  void pause(Operation&, std::uint64_t) {}
  void learn_hand_off_time(std::uint64_t, std::uint64_t) {}
  std::uint64_t own(std::uint32_t word) const { return words_.at(rank_, word); }
  std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
    return std::exchange(words_.at(rank_, word), own(word) + value);
  }

 private:
  void write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value) {
    if (begin(operation, rank, word)) words_.at(rank, word) = value;
  }
  bool begin(Operation& operation, int rank, std::uint32_t word) {
    reached.push_back(rank);
    operation.failed_ = fails(rank, word);
    operation.value_ = words_.at(rank, word);
    return !operation.failed_;
  }
  Words& words_;
  int rank_;
};
static_assert(NotifyingMemory<FailingMemory>);

}  // namespace farside::epochs
