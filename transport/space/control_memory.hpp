// SPDX-License-Identifier: BSD-3-Clause
// ControlMemory: RemoteMemory over the ControlWords of a space: mapped words, messages, or the adapter. All ranks use
// one atomicity domain. In the domain cpu, atomics are CPU instructions of this process on mapped words, and of the
// target's message handler on other words. In the domain nic, network adapters execute all atomics, also those on a
// rank's own words.
//
// Thread safety: several threads may issue, each on its own Operation. Errors: Operation::failed and take_error
// (kPeer, kRange; kOther after a failed adapter atomic on an own word). Cost: nothing remote on mapped words, otherwise
// one message or one adapter operation per step.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <utility>

#include "transport/base/atomics.hpp"
#include "transport/base/log.hpp"
#include "transport/base/remote_memory.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/process.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/space.hpp"

namespace farside {

class ControlMemory {
 public:
  // Must not move or end until it is done.
  class Operation {
   public:
    // Waits until the endpoint no longer uses this object, also if the operation was abandoned.
    ~Operation() {
      if (!pending_.done()) [[unlikely]]
        wait_until(Process::instance().own_wake_event(), [this] { return pending_.done(); });
    }
    // False for ever if the operation has failed.
    bool done() const {
      return pending_.done() && !pending_.has_error() &&
             (not_before_ == Clock::time_point{} || Clock::now() >= not_before_);
    }
    std::uint64_t value() const { return value_; }
    // Returns whether the last use failed; take_error says why.
    bool failed() const {
      if (!pending_.done()) return false;
      return pending_.has_error() || (notified_ != nullptr && losses(*notified_, notified_rank_) != lost_before_);
    }
    Status take_error() {
      Status status = pending_.take_error();
      if (!status || notified_ == nullptr) return status;
      return pending_.named(Error{ErrorKind::kPeer, "the connection was lost, and a notification perhaps with it"});
    }

   private:
    friend class ControlMemory;
    Pending pending_;
    const FabricControl* notified_ = nullptr;  // the last use was a notification to this rank by this route
    int notified_rank_ = 0;
    std::uint32_t lost_before_ = 0;  // PeerLosses::lost_notifications
    std::uint64_t value_ = 0;
    Clock::time_point not_before_{};
  };

  // The words of the node that only its CPUs change, in either domain, as a RemoteMemory: what near locks need of one.
  // Its operations take effect at once.
  class Near {
   public:
    class Operation {
     public:
      bool done() const { return true; }
      std::uint64_t value() const { return value_; }

     private:
      friend class Near;
      std::uint64_t value_ = 0;
    };
    explicit Near(ControlWords& words) : words_(words) {}
    void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t expected,
                          std::uint64_t desired) {
      operation.value_ = ControlWord::compare_and_swap(words_.on_node(rank).word(word), expected, desired);
    }
    // Wakes the rank if it sleeps.
    void write_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
      const ControlWords::Mapped block = words_.on_node(rank);
      ControlWord::write(block.word(word), value);
      block.wake();
    }
    std::uint64_t own(std::uint32_t word) const { return ControlWord::look(*words_.own(word)); }
    std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
      return ControlWord::fetch_add(*words_.own(word), value);
    }

   private:
    ControlWords& words_;
  };

  explicit ControlMemory(Space& space) : words_(space.words()), near_(words_) {}

  Near& near() { return near_; }
  // ControlWord defines the memory orders on mapped words.
  void fetch_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value,
                 DataAccess access = DataAccess::kGoesOn) {
    if (const ControlWords::Mapped block = words_.mapped(rank)) [[likely]] {
      operation.value_ = ControlWord::fetch_add(block.word(word), value);
      block.wake();
    } else {
      issue(operation, {ControlCall::kFetchAdd, {}, word, value, 0}, rank, access);
    }
  }
  // Adds, and wakes the owner if it sleeps. Precondition: the word is mapped.
  void notify_now(int rank, std::uint32_t word, std::uint64_t value) {
    const ControlWords::Mapped block = words_.mapped(rank);
    ControlWord::prefetch(block.word(word));
    ControlWord::fetch_add(block.word(word), value);
    block.wake();
  }
  // The same for a word that only this rank changes: a store suffices, if it is sequentially consistent with the
  // owner's arming of the wake event (wake_event.hpp).
  void notify_by_write(int rank, std::uint32_t word, std::uint64_t value) {
    const ControlWords::Mapped block = words_.mapped(rank);
    ControlWord::prefetch(block.word(word));
    ControlWord::write(block.word(word), value);
    block.wake();
  }
  bool mapped(int rank) const { return static_cast<bool>(words_.mapped(rank)); }
  void compare_and_swap(Operation& operation, int rank, std::uint32_t word, std::uint64_t expected,
                        std::uint64_t desired) {
    if (const ControlWords::Mapped block = words_.mapped(rank)) [[likely]] {
      operation.value_ = ControlWord::compare_and_swap(block.word(word), expected, desired);
      block.wake();
    } else {
      issue(operation, {ControlCall::kCompareAndSwap, {}, word, desired, expected}, rank);
    }
  }
  void read(Operation& operation, int rank, std::uint32_t word) {
    read(operation, rank, word, std::span(&operation.value_, 1));
  }
  void read(Operation& operation, int rank, std::uint32_t word, std::span<std::uint64_t> values) {
    if (const ControlWords::Mapped block = words_.mapped(rank)) [[likely]] {
      for (std::uint64_t& value : values) {
        value = ControlWord::read(block.word(word));
        word += sizeof value;
      }
    } else {
      issue(operation, {ControlCall::kRead, {}, word, values.size(), 0}, rank, DataAccess::kGoesOn, values.data());
    }
  }
  // Operations that no caller awaits. They take effect in the order of their issue: the messages of a connection do,
  // and the atomics and writes of an adapter's connection.
  void add_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    if (mapped(rank)) [[likely]]
      return notify_now(rank, word, value);
    post(ControlCall::kFetchAdd, rank, word, value);
  }
  void write_unawaited(int rank, std::uint32_t word, std::uint64_t value) {
    if (mapped(rank)) [[likely]]
      return notify_by_write(rank, word, value);
    post(ControlCall::kWrite, rank, word, value);
  }
  // Whether all posts have taken effect or failed. The window must not end before.
  bool posts_done() {
    if (!posted_) [[likely]]
      return true;
    const std::scoped_lock held(posts_mutex_);
    take_done();
    return posts_.empty();
  }
  // The error of the first post that has failed since the last call.
  Status take_unawaited_error() {
    if (!posted_) [[likely]]
      return {};
    const std::scoped_lock held(posts_mutex_);
    take_done();
    return std::exchange(post_error_, {});
  }
  // See NotifyingMemory.
  void notify_add(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess access) {
    if (mapped(rank)) [[likely]]
      return fetch_add(operation, rank, word, value);
    issue(operation, {ControlCall::kFetchAdd, {}, word, value, 0}, rank, access, nullptr, true);
  }
  void notify_write(Operation& operation, int rank, std::uint32_t word, std::uint64_t value, DataAccess access) {
    if (mapped(rank)) [[likely]]
      return notify_by_write(rank, word, value);
    issue(operation, {ControlCall::kWrite, {}, word, value, 0}, rank, access, nullptr, true);
  }
  // Waits for an operation, and returns its error.
  Status await(Operation& operation) {
    wait_until(words_.wake_event(), [&] { return operation.done() || operation.failed(); });
    return operation.failed() ? operation.take_error() : Status();
  }
  // The route to words that are not mapped; null if there are none.
  FabricControl* route() const { return words_.route(); }
  // See NotifyingMemory. False for words that are mapped. Three loads if there was no later interruption.
  bool interrupted_since(int rank, std::uint32_t interruptions) const {
    FabricControl* const by = words_.route(rank);
    return by != nullptr && by->interruptions() != interruptions && by->losses(rank).interrupted_after(interruptions);
  }
  // The first of the ranks whose notifications may have been lost since then; -1: none. One load if there was none.
  int first_interrupted(auto&& ranks, std::uint32_t interruptions) const {
    if (this->interruptions() == interruptions) [[likely]]
      return -1;
    for (const int rank : ranks) {
      if (interrupted_since(rank, interruptions)) return rank;
    }
    return -1;
  }
  // Whether a post of the rank may have been lost since the last one that has arrived.
  bool may_lack_post(int rank) const {
    FabricControl* const by = words_.route(rank);
    return by != nullptr && interrupted_since(rank, by->interruptions_at_post(rank));
  }
  std::uint32_t interruptions() const { return route() != nullptr ? route()->interruptions() : 0; }
  std::uint32_t first_interruptions() const { return route() != nullptr ? route()->first_interruptions() : 0; }
  void pause(Operation& operation, std::uint64_t hand_offs) {
    const auto longest = static_cast<std::uint64_t>(Timing::kLongestPause / Timing::Nanoseconds(1));
    const auto unit = static_cast<std::uint64_t>(hand_off_time_.load(std::memory_order_relaxed));
    operation.not_before_ = Clock::now() + std::chrono::nanoseconds(std::min(hand_offs, longest / unit) * unit);
  }
  // Moves the estimate halfway to a faster pace, but only one eighth of the way to a slower one: late waiters may
  // have caused the slower pace. A waiter that pauses too long delays others; one that pauses too briefly only probes
  // once more. Concurrent updates of several threads may be lost.
  void learn_hand_off_time(std::uint64_t hand_offs, std::uint64_t taken_place) {
    const double unit = static_cast<double>(hand_off_time_.load(std::memory_order_relaxed));
    const double seen =
        unit * static_cast<double>(hand_offs) / static_cast<double>(std::max<std::uint64_t>(taken_place, 1));
    const double next = unit + (seen - unit) / (seen < unit ? 2 : 8);
    hand_off_time_.store(std::clamp<std::int64_t>(static_cast<std::int64_t>(next), Timing::kFastestHandOff.count(),
                                                  Timing::kSlowestHandOff.count()),
                         std::memory_order_relaxed);
  }
  std::uint64_t own(std::uint32_t word) const { return ControlWord::look(*words_.own(word)); }
  // In the domain nic the adapter executes this, and the caller waits for it: a few microseconds. If the adapter fails,
  // the word is unknown. This is logged, and all later operations over the fabric fail.
  std::uint64_t own_fetch_add(std::uint32_t word, std::uint64_t value) {
    if (words_.changed_by_cpu()) [[likely]]
      return ControlWord::fetch_add(*words_.own(word), value);
    return fetch_add_waiting(word, value);
  }

 private:
  // How often notifications to the rank may have been lost with its connection.
  static std::uint32_t losses(const FabricControl& route, int rank) {
    return route.interruptions() != 0 ? route.losses(rank).lost_notifications.load(std::memory_order_relaxed) : 0;
  }

  // Drops the posts that are done. With posts_mutex_ held.
  void take_done() {
    std::erase_if(posts_, [this](Operation& post) {
      if (!post.pending_.done()) return false;
      if (post.failed()) post_error_.keep(post.take_error());
      return true;
    });
  }
  void post(ControlCall call, int rank, std::uint32_t word, std::uint64_t value) {
    std::list<Operation> one;
    patiently([&] { one.emplace_back(); });
    issue(one.front(), {call, {}, word, value, 0}, rank);
    const std::scoped_lock held(posts_mutex_);
    take_done();
    posts_.splice(posts_.end(), one);
    posted_ = true;
  }
  // `fetched`: null for the operation's own value. `notifies`: as a notification.
  void issue(Operation& operation, const ControlStep& step, int rank, DataAccess access = DataAccess::kGoesOn,
             std::uint64_t* fetched = nullptr, bool notifies = false) {
    FabricControl& by = *words_.route();
    operation.notified_ = notifies ? &by : nullptr;
    operation.notified_rank_ = rank;
    if (notifies) operation.lost_before_ = losses(by, rank);
    operation.pending_.towards(rank);
    if (fetched == nullptr) fetched = &operation.value_;
    const auto try_it = [&] { return by.control(step, access, rank, operation.pending_, fetched, !notifies); };
    Status status = usable();
    // Without memory nothing has been issued. It is repeated: a protocol whose later step fails may keep a lock.
    if (status) status = without_bad_alloc([&] { return patiently(try_it); });
    if (!status) operation.pending_.failed(status.error());
  }

  std::uint64_t fetch_add_waiting(std::uint32_t word, std::uint64_t value) {
    Operation operation;
    fetch_add(operation, words_.rank(), word, value);
    const Status done = await(operation);
    if (done) return operation.value();
    if (!own_word_unknown_.exchange(true)) {
      log(LogLevel::kError,
          "an atomic of the adapter on an own control word: {}; locks and posts of the window fail now",
          done.error().text);
    }
    return 0;
  }

  Status usable() const {
    if (!own_word_unknown_.load(std::memory_order_relaxed)) [[likely]]
      return {};
    return Error{ErrorKind::kOther, "an earlier atomic of the adapter on an own control word failed; free the window"};
  }

  ControlWords& words_;
  Near near_;
  std::atomic<bool> own_word_unknown_{false};                          // fetch_add_waiting() has failed
  std::atomic<std::int64_t> hand_off_time_{Timing::kHandOff.count()};  // measured from the first long wait on
  // Operations that no caller awaits, on words that are not mapped.
  Published<bool> posted_ = false;  // there was one
  std::mutex posts_mutex_;          // guards the next members
  std::list<Operation> posts_;      // some may be done
  Status post_error_;
};
static_assert(NotifyingMemory<ControlMemory>);

}  // namespace farside
