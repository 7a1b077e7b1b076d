// SPDX-License-Identifier: BSD-3-Clause
// OpenTargets: which targets the open epoch of a window allows operations and flushes on. EpochState changes it, under
// the window's mutex. Operations and flushes read it without the mutex.
//
// Three members each allow targets by themselves: `lone_` one target, `below_` all ranks, `members_` a set. So no reader
// combines two of them. Of the set, a reader needs its bits and whether the set is open: these belong together if the
// set was not closed while it read them (`closed_`).
//
// Thread safety: operation() and flush() any thread, also during a change: they return true only for a target that was
// open at some moment of the call. All other functions one thread at a time. No remote operations. Memory: 72 bytes, and
// a bit per rank from the first set on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "transport/base/published.hpp"

namespace farside::epochs {

class OpenTargets {
 public:
  explicit OpenTargets(int ranks) : ranks_(static_cast<unsigned>(ranks)) {}

  bool operation(int target) const { return is_lone(target) || number(target) < below_ || listed(target, false); }
  bool flush(int target) const {
    return flush_lone_ == number(target) || number(target) < flush_below_ || listed(target, true);
  }

  // `passive`: by locks, so that flushes are allowed as well.
  void open_lone(int target, bool passive) {
    if (passive) flush_lone_ = number(target);
    lone_ = number(target);
  }
  void close_lone() { flush_lone_ = lone_ = kNobody; }
  bool has_lone() const { return lone_ != kNobody; }
  int lone() const { return static_cast<int>(lone_); }
  bool is_lone(int target) const { return lone_ == number(target); }

  void open_all(bool passive) {
    if (passive) flush_below_ = ranks_;
    below_ = ranks_;
  }
  void close_all() { flush_below_ = below_ = 0; }

  // The set may change while it is open or closed. Precondition of all that follow: reserve_members() was true.
  bool reserve_members() {
    if (!members_.empty()) return true;
    try {
      members_ = std::vector<Bits>((std::size_t{ranks_} + 63) / 64);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  bool has_members() const { return !members_.empty(); }
  bool member(int target) const { return (members_[number(target) / 64] >> (number(target) % 64) & 1) != 0; }
  void add(int target) {
    Bits& bits = members_[number(target) / 64];
    bits = bits | std::uint64_t{1} << (number(target) % 64);
  }
  void remove(int target) {
    Bits& bits = members_[number(target) / 64];
    bits = bits & ~(std::uint64_t{1} << (number(target) % 64));
  }
  void open_members(bool passive) {
    members_passive_ = passive;
    members_below_ = ranks_;
  }
  void close_members() {
    if (members_below_ == 0) return;
    members_below_ = 0;
    closed_ = closed_ + 1;
  }
  bool members_open() const { return members_below_ != 0; }

 private:
  using Bits = Published<std::uint64_t>;
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};  // different from every rank
  static unsigned number(int target) { return static_cast<unsigned>(target); }

  bool listed(int target, bool passive) const {
    if (number(target) >= members_below_) [[likely]]
      return false;
    const unsigned closed = closed_;
    const bool open = number(target) < members_below_ && (!passive || members_passive_) && member(target);
    return open && closed_ == closed;
  }

  Published<std::uint64_t> lone_ = kNobody;
  Published<std::uint64_t> flush_lone_ = kNobody;
  Published<unsigned> below_ = 0;
  Published<unsigned> flush_below_ = 0;
  Published<unsigned> members_below_ = 0;  // ranks_ while the set is open
  Published<unsigned> closed_ = 0;         // how often the set was closed
  Published<bool> members_passive_ = false;
  unsigned ranks_;
  std::vector<Bits> members_;
};

}  // namespace farside::epochs
