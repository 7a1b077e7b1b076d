// SPDX-License-Identifier: BSD-3-Clause
// The policy of time: how long to spin, yield, sleep and back off, and when to look again. Each value has its unit,
// where it was measured, and what breaks if it is wrong. The comments with the mechanisms are beside these. "2 cores"
// is a virtual machine with Open MPI and MPICH; values without a place were chosen, not measured.
#pragma once

#include <chrono>
#include <cstdint>

namespace farside {

using Clock = std::chrono::steady_clock;  // of all waits

struct Timing {
  using Nanoseconds = std::chrono::nanoseconds;
  using Microseconds = std::chrono::microseconds;
  using Milliseconds = std::chrono::milliseconds;
  using Seconds = std::chrono::seconds;

  // Waits in general.

  // Looks, about 1 us: some hand-offs between cores, of under 200 ns (2 cores, 2 to 8 ranks), or the hold of an
  // accumulate lock. Fewer: a switch of context per hand-off. More: with more ranks than cores, a time slice.
  static constexpr int kSpins = 64;
  // Yields, of 0.5 us or a time slice (2 cores). Fewer: waits for TCP, 20 to 60 us, sleep. More: idle ranks use cores.
  static constexpr int kYields = 64;
  // Yields between two looks at the clock in a wait for a large transfer. Fewer: slower transfers; more: late reports.
  static constexpr int kYieldsPerClock = 4096;
  // To the next look for what nothing signals: the runtime, memory, a lock, room at the provider. Longer: that much
  // latency; shorter: an idle process uses its core.
  static constexpr Milliseconds kTryAgain{1};
  // Times kTryAgain that an allocation is tried. Fewer: protocols end halfway; more: a process without memory hangs.
  static constexpr int kTriesForMemory = 1000;
  // Sections in a row after which a thread takes a BiasedMutex: the 10 us that the end of the bias costs are what it
  // saves in so many. Fewer: threads that alternate pay more for the ends.
  static constexpr std::uint16_t kInARow = 1024;

  // Inside a node.

  // Ticks (ticks.hpp), 2 to 8 us at 4 to 1 GHz: several calls of a runtime's progress engine. A process that has polled
  // so recently polls still. Shorter: system calls and wake-ups beside a poller; longer: messages to one that is gone.
  static constexpr std::uint64_t kJustNow = 8'000;
  // Ticks, 12 to 50 us; a virtual machine's interrupt takes 40. Shorter: the thread was woken 1,450 times per second
  // beside a poller, 5 % of the time of small operations (2 cores). Longer: a poller that is gone is noticed late.
  static constexpr std::uint64_t kInterrupt = 50'000;
  // Looks, 64 us, for the reply of a poller. More: a poller that cannot reply costs as much per message.
  static constexpr int kSpinsForPoller = 4'096;
  // Between two looks whether the owner of a message queue has ended: a system call. Longer: its death is found late.
  static constexpr Milliseconds kOwnerCheck{100};
  // For the reply of a local peer, whose thread takes 10 us to wake, and time slices of 4 ms on a busy node; and of a
  // peer that has exceeded that. Shorter: system calls in place of lists. Longer: a stopped peer costs more.
  static constexpr Milliseconds kReply{50}, kReplyAgain{2};
  // For the accumulate lock, in a handler, which serves no other rank meanwhile. A holder takes a few us.
  static constexpr Microseconds kHandlerLock{100};
  // After that a thread claims the accumulate lock, which others then leave. Longer: it starves among running ranks.
  static constexpr Milliseconds kClaimAfter{1};

  // The progress thread beside application threads (AdaptivePolling).

  // Its back-off, while others poll. Shorter: it takes the poller's core; longer: arrivals wait when they stop.
  static constexpr Microseconds kShortestBackOff{50}, kLongestBackOff{1000};
  // One in so many parts of the time for which they have polled is the back-off. 1: as late as long; 100: as none.
  static constexpr int kBackOffShare = 8;
  // Threads in the runtime serve for so long before the thread looks. Longer: an arrival waits, if they have left.
  static constexpr Milliseconds kRuntimeServes{5};
  // The age at most of a poll of a thread that counts as waiting in the runtime.
  static constexpr Microseconds kRecentPoll{200};
  // The shortest poll that has moved data; one without takes 1 to 2 us. Longer: data count as none.
  static constexpr Nanoseconds kLongPoll{10'000};
  // The thread's longest sleep, and between two checks of peers: what a lost wake-up costs. Shorter: an idle process
  // uses its core.
  static constexpr Milliseconds kSafetyNet{250};
  // Between two looks at connection events. Shorter: polls keep the mutex; longer: connecting, with two events, waits.
  static constexpr Microseconds kReadEventsEvery{100};
  // The most for which a large transfer, at 1 ns per byte, is expected to need polls. Longer: idle waiters yield.
  static constexpr Milliseconds kLongestTransfer{100};
  // From the first small operation to the flush of a burst. Hundreds take less.
  static constexpr Microseconds kLongestBurst{50};

  // Connections and peers.

  // Until a refused connection is tried again, doubled each time. Shorter: storms; longer: late ranks wait.
  static constexpr Milliseconds kConnectAgain{1}, kConnectAgainLongest{100};
  // For a DISCONNECT that follows a new connection. Shorter: operations of the old one fail.
  static constexpr Seconds kForDisconnect{5};
  // For the end of a TCP stream, before libfabric's shutdown, and for the last replies at the end, with looks between.
  static constexpr Milliseconds kTcpEnd{50};
  static constexpr Seconds kLastReplies{2};
  static constexpr Microseconds kLookAtEnd{50};
  // Without use, before an eviction: the lowest and the highest; times the former, a reopening is "soon", and doubles
  // it. Shorter: ranks that need each other connect for ever; longer: FARSIDE_CONNECTIONS is exceeded.
  static constexpr Milliseconds kShortestIdle{100};
  static constexpr Seconds kLongestIdle{100};
  static constexpr int kReopenedSoon = 16;
  // Between two passes over the connections, while there are too many. Shorter: time; longer: more connections.
  static constexpr Milliseconds kRoomAgain{20};
  // Without an acknowledgement, before a peer's socket is looked at. Shorter: system calls per peer.
  static constexpr Seconds kQuiet{1};
  // For a peer's part in the trial of a provider. Shorter: a busy peer loses the adapter; longer: windows are late.
  static constexpr Seconds kTrial{3};

  // Locks.

  // Of a hand-off before it is measured: to wake a process, or a round trip of a fast network; and the limits of the
  // measured one. Less: more probes; more: late waiters, which delay those behind them.
  static constexpr Nanoseconds kHandOff{5'000}, kFastestHandOff{200}, kSlowestHandOff{1'000'000'000};
  // Of a waiter beyond the ring. Longer: a wrong estimate delays the lock as much.
  static constexpr Seconds kLongestPause{10};
  // Locks of others before a rank that has yielded takes a ticket, and the time of that
  // (epochs/decisions/2026-11-29-lock-without-ticket.md). 8: 16 ranks on 2 cores take twice as long; 1,024: a
  // hundredth of the turns for some; 0.1 ms: the queue never empties.
  static constexpr std::uint64_t kMostOvertakers = 64;
  static constexpr Microseconds kWithoutTicket{500};
  // Looks for dead ranks per FARSIDE_PEER_TIMEOUT: two find a death on this node, three one elsewhere.
  static constexpr int kLooksForDead = 6;

  // The MPI runtime.

  // Calls that do not wait, between two looks whether the runtime is to be progressed. Fewer: a clock per call.
  static constexpr unsigned kCallsPerLook = 64;
  // After a call of its engine, the pause in times of the call (50 ns to many us), and its limits in ticks: 5 to 20 us,
  // 0.5 to 2 ms. Shorter: flushes cost the engine's time; longer: messages of a program that only flushes are late.
  static constexpr std::uint64_t kRuntimePause = 16, kShortestRuntimePause = 20'000, kLongestRuntimePause = 2'000'000;
};

}  // namespace farside
