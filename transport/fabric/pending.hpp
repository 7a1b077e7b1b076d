// SPDX-License-Identifier: BSD-3-Clause
// Counts of operations in flight, and what is known of connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "transport/base/result.hpp"

namespace farside {

// Pending: counts operations that were issued and are not complete, and keeps the first error among them.
//
// Thread safety: any thread may call all members but towards() and next_counts_in().
class Pending {
 public:
  Pending() = default;
  // Operations that count here count in `parent` as well, but their errors do not go there.
  explicit Pending(Pending* parent) : parent_(parent), rank_(parent->rank_) {}
  ~Pending() { (void)take_error(); }

  // Sets the target of the operations that follow, for error messages.
  void towards(int rank) { rank_ = rank; }
  Error named(Error error) const {
    error.rank = rank_;
    return error;
  }
  // The next operation counts in `other` as well, until it is complete, but its errors do not go there. Precondition:
  // nothing is in flight here, and only one operation is until that one is complete. Null: it does not.
  void next_counts_in(Pending* other) { other_ = other; }
  void issued() {
    if (parent_ != nullptr) parent_->issued();
    if (other_ != nullptr) other_->issued();
    outstanding_.fetch_add(1, std::memory_order_relaxed);
  }
  // Release: data that the operation fetched are visible to a thread that sees it done. That thread may destroy this.
  void completed() {
    Pending* const parent = parent_;
    Pending* const other = other_;
    if (other != nullptr) other_ = nullptr;
    outstanding_.fetch_sub(1, std::memory_order_release);
    if (parent != nullptr) parent->completed();
    if (other != nullptr) other->completed();
  }
  void failed(Error error) {
    Error* const mine = Status(named(std::move(error))).release();
    Error* none = nullptr;
    if (!error_.compare_exchange_strong(none, mine, std::memory_order_acq_rel)) (void)Status(mine);
  }
  std::uint32_t count() const { return outstanding_.load(std::memory_order_relaxed); }
  bool done() const { return outstanding_.load(std::memory_order_acquire) == 0; }
  bool has_error() const { return error_.load(std::memory_order_acquire) != nullptr; }
  // Returns the first error since the last call; the caller must report it.
  Status take_error() {
    if (error_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return {};
    return Status(error_.exchange(nullptr, std::memory_order_acq_rel));
  }

 private:
  Pending* const parent_ = nullptr;
  Pending* other_ = nullptr;
  int rank_ = Error::kNoRank;
  std::atomic<std::uint32_t> outstanding_{0};
  std::atomic<Error*> error_{nullptr};
};

// Operations under way towards one target over the fabric, in four classes. Operations of one class may be ordered
// among themselves, but not with those of other classes. Thread safety: that of Pending.
struct Outstanding {
  Outstanding() = default;
  // A subset of the operations of `all`, for a request: they count in `all` as well, but only this has their errors.
  explicit Outstanding(Outstanding& all)
      : writes(&all.writes), reads(&all.reads), atomics(&all.atomics), messages(&all.messages), fetches(&all.fetches) {}

  // Sets the target, for error messages. Precondition: nothing is under way.
  void towards(int rank) {
    for (Pending* pending : {&writes, &reads, &atomics, &messages, &fetches}) pending->towards(rank);
  }
  bool done() const { return writes.done() && reads.done() && atomics.done() && messages.done() && fetches.done(); }
  bool has_error() const {
    return writes.has_error() || reads.has_error() || atomics.has_error() || messages.has_error() ||
           fetches.has_error();
  }
  // Returns the first error since the last call; errors of several classes are all taken, and one is returned.
  Status take_error() {
    Status first;
    for (Pending* pending : {&writes, &reads, &atomics, &messages, &fetches}) first.keep(pending->take_error());
    return first;
  }

  Pending writes;  // by RDMA
  Pending reads;
  Pending atomics;             // by the adapter
  Pending messages;            // to the target's handler, with copies of the operands
  Pending fetches{&messages};  // of them, those whose replies have data
  Pending& of_message(bool fetches_data) { return fetches_data ? fetches : messages; }
};

// What the ends of connections to a peer may have lost. Thread safety: any thread may read it.
struct PeerLosses {
  std::atomic<std::uint32_t> last_interruption{0};   // its number (Endpoint::interruptions()); 0: none
  std::atomic<std::uint32_t> lost_notifications{0};  // how often notifications to the peer may have been lost
  std::atomic<bool> to_report{false};                // the next operation towards the peer fails for that reason

  // Returns whether notifications of the peer may have been lost after so many interruptions. The numbers may wrap.
  bool interrupted_after(std::uint32_t interruptions) const {
    const std::uint32_t last = last_interruption.load(std::memory_order_relaxed);
    return last != 0 && static_cast<std::int32_t>(last - interruptions) > 0;
  }
};

// Whether there is a connection to a peer, or the error of the last attempt; empty: none has ended yet.
struct Reach {
  bool connected = true;
  std::string error = {};
};

}  // namespace farside
