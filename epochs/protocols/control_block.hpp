// SPDX-License-Identifier: BSD-3-Clause
// The control words of one rank in one window, by byte offset from the start of its control block. Each row begins a
// cache line, but for the drain words, which the changes of their lock words accompany, and the held locks. Size: 7,296
// bytes, and 8 per 32 ranks.
//
//     0  header of transport (transport/space/space.hpp)
//   576  lock                   the passive-target lock of this rank (lock.hpp)
//   584  drain                  its readers that a waiting writer waits for
//   640  completed              completed access epochs towards this rank (exposure.hpp); only grows
//   648  incomplete             0, or 1 plus the rank of one of them whose operations have failed
//   656  held[3]                the first locks of targets that this rank holds (lock_table.hpp), for ranks that have
//                              waited for long; no protocol reads them
//   704  barrier[32]            barriers entered by a rank that this one waits for, and its flags (barrier.hpp): per
//                              round, per level of the tree of a node, and of the rank that releases this one
//   960  wake[8]                wake words: this rank waits here for locks of other ranks, one word per lock
//  1024  ring[256]              waiters for this rank's lock
//  3072  global lock            of the window, at its home rank: lock_alls and exclusive locks (lock.hpp)
//  3080  global_lock_drain[2]   its lock_alls, and its exclusive locks, that a waiter of the other group waits for
//  3096  near                   the near lock of some targets (near_lock.hpp), changed by the CPUs of the node only
//  3104  near_next, near_wake, near_token   what the next rank in a near lock and the one before it tell this rank
//  3136  global_lock_ring[256]  waiters for the global lock
//  5184  posted[]               two bits per peer: the peer has posted to this rank, which has not started yet; that
//                               post has MPI_MODE_NOPUT
//   ...  attached, notified[256]   how many notification counters this rank has attached, which only its CPU changes,
//                               and notified operations by counter (notification.hpp); only grow
#pragma once

#include <cstddef>
#include <cstdint>

namespace farside::epochs {

// `kSlots`: slots per ring; tests have shorter rings.
template <std::uint32_t kSlots>
struct ControlBlockOf {
  static constexpr std::uint32_t kLock = 576;  // behind the header (Space::kHeaderBytes)
  static constexpr std::uint32_t kDrain = kLock + 8;
  static constexpr std::uint32_t kCompleted = kLock + 64;
  static constexpr std::uint32_t kIncomplete = kCompleted + 8;
  static constexpr std::uint32_t kHeld = kCompleted + 16;
  static constexpr std::uint32_t kHeldLocks = 3;
  static constexpr std::uint32_t kBarrier = kLock + 128;
  static constexpr std::uint32_t kBarrierRounds = 20;
  static constexpr std::uint32_t kBarrierLevels = 11;
  static constexpr std::uint32_t kBarrierRelease = kBarrier + 8 * (kBarrierRounds + kBarrierLevels);
  static constexpr std::uint32_t kWake = kBarrierRelease + 8;
  static constexpr std::uint32_t kWakeWords = 8;
  static constexpr std::uint32_t kRing = kWake + 8 * kWakeWords;
  static constexpr std::uint32_t kRingSlots = kSlots;
  static constexpr std::uint32_t kGlobalLock = kRing + 8 * kRingSlots;
  static constexpr std::uint32_t kGlobalLockDrain = kGlobalLock + 8;
  static constexpr std::uint32_t kNear = kGlobalLockDrain + 16;
  static constexpr std::uint32_t kNearNext = kNear + 8;
  static constexpr std::uint32_t kNearWake = kNear + 16;
  static constexpr std::uint32_t kNearToken = kNear + 24;
  static constexpr std::uint32_t kGlobalLockRing = kGlobalLock + 64;
  static constexpr std::uint32_t kPosted = kGlobalLockRing + 8 * kRingSlots;

  static constexpr std::uint32_t barrier_round(int round) { return kBarrier + 8U * static_cast<std::uint32_t>(round); }
  static constexpr std::uint32_t barrier_arrival(int level) {
    return kBarrier + 8U * (kBarrierRounds + static_cast<std::uint32_t>(level));
  }
  static constexpr std::uint32_t wake_word(std::uint32_t index) { return kWake + 8U * index; }
  static constexpr std::uint32_t ring_word(std::uint64_t ticket) {
    return kRing + 8U * static_cast<std::uint32_t>(ticket % kRingSlots);
  }
  static constexpr std::uint32_t global_lock_ring_word(std::uint64_t ticket) {
    return kGlobalLockRing + 8U * static_cast<std::uint32_t>(ticket % kRingSlots);
  }
  static constexpr std::uint32_t posted_word(int peer) {
    return kPosted + 8U * (static_cast<std::uint32_t>(peer) / 32);
  }
  static constexpr std::uint64_t posted_bit(int peer) {
    return std::uint64_t{1} << (2 * (static_cast<unsigned>(peer) % 32));
  }
  static constexpr std::uint64_t no_put_bit(int peer) { return 2 * posted_bit(peer); }
  static constexpr std::uint32_t kNotificationCounters = 256;
  // `ranks`: of the window.
  static constexpr std::uint32_t attached_word(int ranks) { return (posted_word(ranks - 1) + 8 + 63) / 64 * 64; }
  static constexpr std::uint32_t notified_word(int ranks, int counter) {
    return attached_word(ranks) + 64 + 8U * static_cast<std::uint32_t>(counter);
  }
  static constexpr std::size_t bytes(int ranks) { return notified_word(ranks, kNotificationCounters); }
};
using ControlBlock = ControlBlockOf<256>;
static_assert(ControlBlock::kRing == 1024 && ControlBlock::kGlobalLock == 3072 && ControlBlock::kPosted == 5184);

}  // namespace farside::epochs
