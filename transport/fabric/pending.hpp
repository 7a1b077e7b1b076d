// SPDX-License-Identifier: BSD-3-Clause
// Counts of operations in flight, and what is known of connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "transport/base/result.hpp"

namespace farside {

// Pending: counts the operations towards one target that were issued and are not complete, in four classes, and keeps
// the first error among them. Operations of one class may be ordered among themselves, but not with those of others.
//
// Thread safety: any thread may call all members but towards() and next_counts_in(). Limit: 65,535 operations of a
// class; endpoints have fewer in flight towards one peer.
class Pending {
 public:
  // By RDMA (two), of the adapter, to the target's handler; kFetches: those messages whose replies have data.
  enum Class : std::uint8_t { kWrites, kReads, kAtomics, kMessages, kFetches };

  Pending() = default;
  // A part of `all`, for a request: its operations count there as well, but only the part has their errors.
  explicit Pending(Pending* all) : all_(all), rank_(all->rank_) { all->parts_.fetch_add(1, std::memory_order_relaxed); }
  ~Pending() {
    (void)take_error();
    if (all_ != nullptr) all_->parts_.fetch_sub(1, std::memory_order_release);
  }

  // Sets the target of the operations that follow, for error messages.
  void towards(int rank) { rank_ = rank; }
  Error named(Error error) const {
    error.rank = rank_;
    return error;
  }
  // The next operation counts in `other` as well, until it is complete, but its errors do not go there. Precondition:
  // nothing is in flight here, and only one operation is until that one is complete. Null: it does not.
  void next_counts_in(Pending* other) { other_ = other; }
  void issued(Class of) {
    if (all_ != nullptr) all_->issued(of);
    if (other_ != nullptr) other_->issued(of);
    if (of == kFetches) fetches_.fetch_add(1, std::memory_order_relaxed);
    in_flight_.fetch_add(one(of), std::memory_order_relaxed);
  }
  // Release: data that the operation fetched are visible to a thread that sees it done. That thread may destroy this.
  void completed(Class of) {
    Pending* const all = all_;
    Pending* const other = other_;
    if (other != nullptr) other_ = nullptr;
    if (of == kFetches) fetches_.fetch_sub(1, std::memory_order_release);
    in_flight_.fetch_sub(one(of), std::memory_order_release);
    if (all != nullptr) all->completed(of);
    if (other != nullptr) other->completed(of);
  }
  void failed(Error error) {
    Error* const mine = Status(named(std::move(error))).release();
    Error* none = nullptr;
    if (!error_.compare_exchange_strong(none, mine, std::memory_order_acq_rel)) (void)Status(mine);
  }
  std::uint32_t count(Class of) const {
    if (of == kFetches) return fetches_.load(std::memory_order_acquire);
    return static_cast<std::uint16_t>(in_flight_.load(std::memory_order_acquire) / one(of));
  }
  bool done(Class of) const { return count(of) == 0; }
  bool done() const { return in_flight_.load(std::memory_order_acquire) == 0; }
  // Returns whether nothing refers to this: no operation, and no part.
  bool unreferenced() const { return done() && parts_.load(std::memory_order_acquire) == 0; }
  bool has_error() const { return error_.load(std::memory_order_acquire) != nullptr; }
  // Returns the first error since the last call; the caller must report it.
  Status take_error() {
    if (error_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return {};
    return Status(error_.exchange(nullptr, std::memory_order_acq_rel));
  }

 private:
  static constexpr std::uint64_t one(Class of) { return std::uint64_t{1} << (16 * (of == kFetches ? kMessages : of)); }

  Pending* const all_ = nullptr;
  Pending* other_ = nullptr;
  std::atomic<std::uint64_t> in_flight_{0};  // 16 bits for each class; kMessages has kFetches as well
  std::atomic<Error*> error_{nullptr};
  std::atomic<std::uint32_t> fetches_{0}, parts_{0};
  int rank_ = Error::kNoRank;
};

// Notifications that the ends of connections to a peer may have lost. Thread safety: any thread may read it.
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

}  // namespace farside
