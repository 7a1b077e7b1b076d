// SPDX-License-Identifier: BSD-3-Clause
// OpenTargets: which targets the open epoch of a window allows operations and flushes on. EpochState changes it, under
// the window's mutex. Operations and flushes read it without the mutex.
//
// Each of three members can allow targets: `single_` one target, `below_` all ranks, and `members_` a set of targets. A
// reader never needs to combine two of them. For the set, a reader needs the bits and whether the set is open. The two
// are consistent if the set was not closed while the reader read them, which the reader checks by `set_`.
//
// Thread safety: operation() and flush() any thread, also during a change: they return true only for a target that was
// open at some moment of the call. All other functions one thread at a time. No remote operations. Memory: 48 bytes,
// and a bit per rank from the first set on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/atomics.hpp"
#include "transport/base/result.hpp"

namespace farside::epochs {

// A bit per rank, allocated when it is first needed. All but empty() and reserve() need that.
class RankBits {
 public:
  bool empty() const { return words_.empty(); }
  bool reserve(unsigned ranks) {
    const auto allocate = [&] { words_ = std::vector<Word>((std::size_t{ranks} + 63) / 64); };
    return !words_.empty() || without_bad_alloc(allocate).ok();
  }
  bool has(int rank) const { return (words_[number(rank) / 64] >> (number(rank) % 64) & 1) != 0; }
  void add(int rank) { words_[number(rank) / 64] = words_[number(rank) / 64] | bit(rank); }
  void remove(int rank) { words_[number(rank) / 64] = words_[number(rank) / 64] & ~bit(rank); }
  void clear() {
    for (Word& word : words_) word = 0;
  }

 private:
  using Word = Published<std::uint64_t>;
  static unsigned number(int rank) { return static_cast<unsigned>(rank); }
  static std::uint64_t bit(int rank) { return std::uint64_t{1} << (number(rank) % 64); }

  std::vector<Word> words_;
};

class OpenTargets {
 public:
  explicit OpenTargets(int ranks) : ranks_(static_cast<unsigned>(ranks)) {}

  bool operation(int target) const { return is_single(target) || number(target) < below_ || listed(target, kOpen); }
  bool flush(int target) const {
    return single_ == single_of(target, true) || number(target) < flush_below_ || listed(target, kOpen | kPassive);
  }

  // `passive`: by locks, so that flushes are allowed as well.
  void open_single(int target, bool passive) { single_ = single_of(target, passive); }
  void close_single() { single_ = kNobody; }
  bool has_single() const { return single_ != kNobody; }
  int single() const { return static_cast<int>(single_ / 2); }
  bool is_single(int target) const { return single_ / 2 == number(target); }

  void open_all(bool passive) {
    if (passive) flush_below_ = ranks_;
    below_ = ranks_;
  }
  void close_all() { below_ = flush_below_ = 0; }

  // The set may change while it is open or closed.
  RankBits& members() { return members_; }
  const RankBits& members() const { return members_; }
  void open_members(bool passive) { set_ = (set_ & ~(kOpen | kPassive)) | kOpen | (passive ? kPassive : 0); }
  void close_members() {
    if (members_open()) set_ = (set_ & ~(kOpen | kPassive)) + kClosed;
  }
  bool members_open() const { return (set_ & kOpen) != 0; }

 private:
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};  // of no target
  static constexpr unsigned kOpen = 1, kPassive = 2, kClosed = 4;
  static unsigned number(int target) { return static_cast<unsigned>(target); }
  static std::uint64_t single_of(int target, bool passive) {
    return std::uint64_t{number(target)} * 2 + (passive ? 1 : 0);
  }

  bool listed(int target, unsigned needed) const {
    const unsigned set = set_;
    if ((set & needed) != needed || number(target) >= ranks_) [[likely]]
      return false;
    return members_.has(target) && set_ == set;
  }

  Published<std::uint64_t> single_ = kNobody;
  Published<unsigned> below_ = 0;
  Published<unsigned> flush_below_ = 0;
  Published<unsigned> set_ = 0;  // flags of the set, and how often it was closed
  unsigned ranks_;
  RankBits members_;
};

}  // namespace farside::epochs
