// SPDX-License-Identifier: BSD-3-Clause
// The texts of the reports of FARSIDE_HANG. They say what the control words show, and no more: the members of a group
// of readers, for instance, have no names there. Words of ranks on this node are read in place. Over the fabric a read
// is a message. It goes only to ranks that the window knows and that have acknowledged all operations so far, and its
// answer is awaited for kReadTimeout.
#include "pmpi/window/wait_reports.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <list>
#include <string_view>

#include <fmt/ranges.h>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"

namespace farside::pmpi {
namespace {

using epochs::BarrierSchedule, epochs::BarrierWord, epochs::ControlBlock, epochs::HeldLock, epochs::LockType,
    epochs::LockWord;

constexpr std::chrono::milliseconds kReadTimeout{500};
// The words of at most kMostQueried ranks are read, and at most kMostReads words are read over the fabric.
constexpr int kMostQueried = 4096;
constexpr std::size_t kMostReads = 256;
constexpr std::size_t kMostNamed = 8;

std::string locks(std::uint64_t count, std::string_view kind) {
  return fmt::format("{} {} lock{}", count, kind, count == 1 ? "" : "s");
}

// Locks in the way of another one.
std::string keep_out(std::uint64_t count, std::string_view kind) {
  return fmt::format("; {}, held or awaited, keep{} it out", locks(count, kind), count == 1 ? "s" : "");
}

}  // namespace

std::string names(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  std::string text = fmt::format("ranks {}", fmt::join(ranks.first(std::min(ranks.size(), kMostNamed)), ", "));
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return text;
}

std::string WaitReports::report_wait(const char* call, std::chrono::seconds waited, const std::string& awaited) const {
  return fmt::format("rank {} has waited {} s in {} {}{}", window_.space->rank(), waited.count(), call, awaited,
                     library().sites->called_from());
}

std::vector<std::optional<std::uint64_t>> WaitReports::read_words(std::span<const WordOf> words) {
  using Operation = ControlMemory::Operation;
  std::vector<std::optional<std::uint64_t>> values(words.size());
  std::list<Operation> reads;
  std::vector<Operation*> read_of(words.size());
  std::size_t sent = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto [rank, word] = words[i];
    if (rank == window_.space->rank()) {
      values[i] = window_.control.own(word);
    } else if (window_.control.mapped(rank) ||
               (window_.control.route() != nullptr && window_.control.route()->may_read(rank) && sent++ < kMostReads)) {
      read_of[i] = &reads.emplace_back();
      window_.control.read(*read_of[i], rank, word);
    }
  }
  // A failure is left: the call that needs the rank will report its own.
  const auto over = [](const Operation& read) { return read.done() || read.failed(); };
  wait_until(window_.space->words().wake_event(), [&, until = Clock::now() + kReadTimeout] {
    return std::ranges::all_of(reads, over) || Clock::now() >= until;
  });
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (read_of[i] != nullptr && read_of[i]->done()) values[i] = read_of[i]->value();
  }
  // An answer that still arrives is written to its operation.
  reads.remove_if(over);
  const auto held = window_.guard();
  window_.unanswered.remove_if(over);
  window_.unanswered.splice(window_.unanswered.end(), reads);
  return values;
}

// The known state of a rank that does not respond, in parentheses; empty if nothing is known.
std::string WaitReports::describe_failure(int rank) {
  if (rank == window_.space->rank()) return {};
  const ProcessIdentity process = window_.space->words().process_of(rank);
  switch (process.state()) {
    case ProcessIdentity::State::kStopped: return fmt::format(" (its process {} is stopped)", process.pid());
    case ProcessIdentity::State::kDead: return fmt::format(" (its process {} has ended)", process.pid());
    case ProcessIdentity::State::kAlive: return {};
    case ProcessIdentity::State::kUnknown: break;
  }
  FabricControl* const route = window_.control.route();
  if (route == nullptr || !route->reached(rank) || window_.control.mapped(rank)) return {};
  if (!route->may_read(rank))
    return " (it has not acknowledged earlier operations: it is stopped, out of reach, or slow)";
  const std::array<WordOf, 1> any{{{rank, ControlBlock::kLock}}};
  if (read_words(any).front()) return {};
  return fmt::format(" (it does not answer within {} ms: it is stopped, or out of reach)", kReadTimeout.count());
}

std::string WaitReports::describe_failure(std::span<const int> ranks) {
  if (ranks.size() == 1) return describe_failure(ranks.front());
  std::string text;
  for (const int rank : ranks.first(std::min(ranks.size(), kMostNamed))) {
    if (const std::string failure = describe_failure(rank); !failure.empty())
      text += fmt::format("; rank {}{}", rank, failure);
  }
  return text;
}

std::string WaitReports::awaited_by_operations(int target) {
  std::vector<int> ranks =
      window_.control.route() != nullptr ? window_.control.route()->unacknowledged() : std::vector<int>();
  std::ranges::sort(ranks);
  if (ranks.empty() && window_.has_rank(target)) ranks.push_back(target);
  if (ranks.empty()) return awaited("for its operations");
  return awaited(fmt::format("for {} to acknowledge operations", names(ranks)), ranks);
}

std::vector<int> WaitReports::exclusive_holders(int target) {
  const int queried = std::min(window_.space->ranks(), kMostQueried);
  std::vector<WordOf> words;
  for (int rank = 0; rank < queried; ++rank) {
    // The list of this rank itself may contain the lock that it waits for.
    if (rank == window_.space->rank()) continue;
    for (std::uint32_t i = 0; i < ControlBlock::kHeldLocks; ++i) {
      const std::uint32_t entry = ControlBlock::kHeld + i * static_cast<std::uint32_t>(sizeof(HeldLock));
      words.push_back({rank, entry});
      words.push_back({rank, entry + 8});
    }
  }
  const auto halves = read_words(words);
  struct Found {
    int rank;
    HeldLock lock;
  };
  std::vector<Found> candidates;
  std::vector<WordOf> lock_words;
  for (std::size_t i = 0; i + 1 < halves.size(); i += 2) {
    if (!halves[i] || !halves[i + 1]) continue;
    const auto lock = std::bit_cast<HeldLock>(std::array{*halves[i], *halves[i + 1]});
    if (lock.type != LockType::kExclusive || !lock.needs_release || (target >= 0 && lock.target != target)) continue;
    if (lock.target < 0 || lock.target >= window_.space->ranks()) continue;
    candidates.push_back({words[i].rank, lock});
    lock_words.push_back({lock.target, ControlBlock::kLock});
  }
  const auto now = read_words(lock_words);
  std::vector<int> holders;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Found& found = candidates[i];
    if (now[i] && found.lock.holds_alone(found.lock.target, *now[i]) &&
        (holders.empty() || holders.back() != found.rank))
      holders.push_back(found.rank);
  }
  return holders;
}

std::string WaitReports::behind_holders(int target, LockType type) {
  const bool global = window_.locks.needs_global_lock(type);
  const std::array<WordOf, 2> words{
      {{target, ControlBlock::kLock},
       {global ? window_.locks.home() : target, global ? ControlBlock::kGlobalLock : ControlBlock::kLock}}};
  const auto values = read_words(words);
  std::string lock_alls;
  if (global && values[1] && LockWord::readers(*values[1]) > 0)
    lock_alls = keep_out(LockWord::readers(*values[1]), "MPI_Win_lock_all");
  if (!values[0]) return lock_alls + "; its holder is not known" + describe_failure(target);
  if (const std::vector<int> holders = exclusive_holders(target); !holders.empty())
    return fmt::format(", which rank {} holds{}{}", holders.front(), describe_failure(holders.front()), lock_alls);
  return fmt::format("{}; its lock word counts {} and {}, held or awaited, and does not say by which ranks{}",
                     lock_alls, locks(LockWord::readers(*values[0]), "shared"),
                     locks(LockWord::writers(*values[0]), "exclusive"), describe_failure(target));
}

std::string WaitReports::awaited_lock(int target, LockType type) {
  return awaited(
             fmt::format("for {} lock at rank {}", type == LockType::kShared ? "a shared" : "an exclusive", target)) +
         behind_holders(target, type);
}

std::string WaitReports::awaited_lock_all(int next) {
  if (!window_.locks.has_global_lock()) {
    return awaited(fmt::format("for the locks of all ranks, and now for that of rank {}", next)) +
           behind_holders(next, LockType::kShared);
  }
  const int home = window_.locks.home();
  const std::array<WordOf, 1> word{{{home, ControlBlock::kGlobalLock}}};
  const auto value = read_words(word).front();
  const std::string begin = awaited("for the locks of all ranks");
  if (!value) return begin + fmt::format("; the global lock at rank {} was not read{}", home, describe_failure(home));
  const std::vector<int> holders = exclusive_holders(-1);
  return begin + keep_out(LockWord::writers(*value), "exclusive") +
         (holders.empty() ? "" : fmt::format(", held by {}{}", names(holders), describe_failure(holders)));
}

std::string WaitReports::awaited_in_barrier(int peer, std::uint64_t word) {
  if (peer < 0) return awaited("for its notifications of other ranks to be sent");
  std::vector<int> missing;
  if (window_.barrier_schedule->is_flat()) {
    const int queried = std::min(window_.space->ranks(), kMostQueried);
    std::vector<WordOf> words;
    for (int rank = 0; rank < queried; ++rank) {
      words.push_back({BarrierSchedule::first_notified(rank, window_.space->ranks()), ControlBlock::barrier_round(0)});
    }
    const auto values = read_words(words);
    for (int rank = 0; rank < queried; ++rank) {
      const auto& value = values[static_cast<std::size_t>(rank)];
      if (rank != window_.space->rank() && value && !BarrierWord::entered(*value, word)) missing.push_back(rank);
    }
  }
  if (missing.empty()) {
    return awaited(fmt::format("for rank {}, which has not reached it, or waits for another rank that has not", peer),
                   {&peer, 1});
  }
  return awaited(fmt::format("for {}, which {} not reached it", names(missing), missing.size() == 1 ? "has" : "have"),
                 missing);
}

std::string WaitReports::awaited_completes() {
  std::vector<int> origins;
  {
    const auto held = window_.guard();
    origins = window_.epoch.exposure().group;
  }
  const std::size_t missing = window_.completions.missing(window_.control, origins.size());
  const std::string number = missing == origins.size() ? "" : fmt::format("{} of ", missing);
  return awaited(fmt::format("for the MPI_Win_complete of {}{}", number, names(origins)), origins);
}

}  // namespace farside::pmpi
