// SPDX-License-Identifier: BSD-3-Clause
// The rules. Times that were not measured are estimated from the time of a call on one machine, only to order the
// advice.
#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/text.hpp"
#include "tools/explain/explain.hpp"
#include "transport/base/address.hpp"

namespace farside::tools::explain {
namespace {

// A rule needs at least so many calls, or this share of the time.
constexpr std::uint64_t kFewCalls = 100;
constexpr double kShareOfTime = 0.01;
// From this ratio on there is about one flush per operation.
constexpr double kFlushesPerOperation = 0.8;
// Locks with fewer operations each could be one lock_all.
constexpr double kOperationsPerLock = 4;
// Waiting is reported from this share of the time on.
constexpr double kShareWaited = 0.05;
// Operations by load and store are reported from this number on.
constexpr std::uint64_t kManyMapped = 10'000'000;

// Seconds per call, as measured on one machine.
constexpr double kMappedOperation = 10e-9;
constexpr double kFlush = 5e-9;
constexpr double kUncontendedLock = 20e-9;
constexpr double kAccumulateLock = 20e-9;
constexpr double kFabricRoundTrip = 30e-6;
constexpr double kSystemCall = 3e-6;

std::string percent(double part, double whole) {
  if (!(whole > 0)) return "0%";
  const double share = 100 * part / whole;
  return share >= 10 ? fmt::format("{:.0f}%", share) : fmt::format("{:.1f}%", share);
}
bool is(const std::string& kind, const char* flavor) { return kind.starts_with(std::string(flavor) + " "); }
bool by(const std::string& kind, const char* route) { return kind.find(route) != std::string::npos; }

class Rules {
 public:
  explicit Rules(const Run& run) : run_(run) {}
  std::vector<Advice> all() {
    for (const auto& [kind, sums] : run_.kinds) {
      private_memory(kind, sums);
      flush_after_every(kind, sums);
      lock_each_time(kind, sums);
      accumulates(kind, sums);
      waits(kind, sums);
      many_small(kind, sums);
    }
    runtime_windows();
    std::ranges::stable_sort(advice_, std::ranges::greater(), &Advice::weight);
    return advice_;
  }

 private:
  bool matters(std::uint64_t calls, double time) const {
    return calls >= kFewCalls || time >= kShareOfTime * run_.seconds;
  }
  template <class... Args>
  void add(std::string rule, const std::string& kind, double weight, fmt::format_string<Args...> text, Args&&... args) {
    advice_.push_back({std::move(rule), kind, fmt::format(text, std::forward<Args>(args)...), weight});
  }

  // MPI_Win_create on memory of malloc: each operation is a system call instead of a load or store.
  void private_memory(const std::string& kind, const WindowKind& sums) {
    const std::uint64_t operations = sums.total("cma").count, all = sums.total().count;
    const double time = std::max(sums.slow_operations.seconds, static_cast<double>(operations) * kSystemCall);
    if (operations == 0 || !matters(operations, time)) return;
    const char* instead = is(kind, "create_dynamic")
                              ? "A dynamic window always goes this way; if its memory is there from the start, one "
                                "window of MPI_Win_allocate would not"
                              : "Let MPI_Win_allocate make the memory, or take it from MPI_Alloc_mem before "
                                "MPI_Win_create: then they are loads and stores";
    add("private_memory", kind, time,
        "{} of its {} operations ({}) went to private memory of an on-node peer, by a system call each, some {} "
        "together. {}.",
        operations, all, percent(static_cast<double>(operations), static_cast<double>(all)), time_text(time), instead);
  }

  void flush_after_every(const std::string& kind, const WindowKind& sums) {
    const std::uint64_t flushes = sums.flushes + sums.flushes_all;
    const std::uint64_t operations = sums.total().count;
    if (operations == 0 || flushes < kFlushesPerOperation * static_cast<double>(operations)) return;
    const bool fabric = sums.total("fabric").count > 0;
    const double time = fabric ? sums.waits_in("flush").seconds : static_cast<double>(flushes) * kFlush;
    if (!matters(flushes, time)) return;
    add("flush_after_every", kind, time,
        "{} flushes for {} operations: about one after each, {} {}. Issue several operations before one flush; {}.",
        flushes, operations, time_text(time), fabric ? "of waiting" : "in all, which is little inside a node",
        fabric ? "each flush over the fabric is a round trip" : "between nodes each would be a round trip");
  }

  void lock_each_time(const std::string& kind, const WindowKind& sums) {
    const std::uint64_t shared = sums.epochs_of("lock_shared"), exclusive = sums.epochs_of("lock_exclusive");
    const std::uint64_t all = sums.epochs_of("lock_all"), operations = sums.total().count;
    const bool fabric = by(kind, "fabric");
    const auto too_many = [&](std::uint64_t calls) {
      return calls >= kFewCalls && exclusive == 0 &&
             static_cast<double>(operations) <= kOperationsPerLock * static_cast<double>(calls);
    };
    const auto time_of = [&](std::uint64_t calls) {
      return std::max(static_cast<double>(calls) * (fabric ? kFabricRoundTrip : kUncontendedLock),
                      sums.waits_in("lock").seconds + sums.waits_in("unlock").seconds);
    };
    if (too_many(shared)) {
      const double time = time_of(shared);
      add("lock_each_time", kind, time,
          "{} shared locks for {} operations, and no exclusive one. One MPI_Win_lock_all after the window is made, "
          "MPI_Win_flush where the data must be there, and one MPI_Win_unlock_all at the end would do: some {} less.",
          shared, operations, time_text(time));
    }
    if (all > 10 * sums.windows && too_many(all)) {
      const double time = time_of(all);
      add("lock_all_each_time", kind, time,
          "{} epochs by MPI_Win_lock_all for {} operations, and no exclusive lock. Open one and keep it; MPI_Win_flush "
          "completes operations without ending it: some {} less.",
          all, operations, time_text(time));
    }
  }

  void accumulates(const std::string& kind, const WindowKind& sums) {
    static const std::map<std::string, const char*> kWhy = {
        {"type",
         "their type is of 1 or 2 bytes, or wider than the 8 that the CPU adds at once. Integers of 4 or 8 bytes go by "
         "atomics"},
        {"unaligned", "they are not aligned to their size. Align them in the window"},
        {"floating_point",
         "the CPU has no atomic addition of floating-point numbers. Inside a node that lock is the fast way; many "
         "elements in one call share it"},
        {"cma",
         "some rank's memory is reached by system calls only, which have no atomics. MPI_Win_allocate, or memory of "
         "MPI_Alloc_mem, would allow them"},
        {"provider",
         "the libfabric provider has no such atomic, or they cross from one attached region into the next"}};
    for (const auto& [how, reasons] : sums.slow) {
      for (const auto& [why, count] : reasons) {
        const bool handler = how == "handler";
        const double time = static_cast<double>(count) * (handler        ? kFabricRoundTrip
                                                          : why == "cma" ? 2 * kSystemCall
                                                                         : kAccumulateLock);
        if (!matters(count, time)) continue;
        const auto found = kWhy.find(why);
        add(handler ? "accumulates_by_handler" : "accumulates_by_lock", kind, time,
            "{} accumulates did not go by atomics but {}, because {}.", count,
            handler ? "by a message to the target's handler" : "under the target's accumulate lock",
            found != kWhy.end() ? found->second : why.c_str());
      }
    }
  }

  void waits(const std::string& kind, const WindowKind& sums) {
    struct Call {
      std::string name, what_for, advice;
    };
    static const Call kCalls[] = {
        {"lock", " for a lock",
         "Keep exclusive locks shorter, spread what they protect over several ranks, or use MPI_Fetch_and_op and "
         "MPI_Accumulate under shared locks; FARSIDE_TRACE and farside trace show who held them"},
        {"fence", "",
         "Fences wait for the last rank: spread the work evenly, or use locks or post and start, which wait for fewer"},
        {"start", "", "MPI_Win_start waited for MPI_Win_post of its targets: let them post sooner"},
        {"wait", "",
         "MPI_Win_wait waited for MPI_Win_complete of the origins: let them complete sooner, or do something else "
         "before it"}};
    for (const Call& call : kCalls) {
      const Waits waits = sums.waits_in(call.name);
      if (waits.count == 0 || waits.seconds < kShareWaited * run_.seconds) continue;
      const bool round_trips = call.name == "lock" && by(kind, "fabric");
      add(call.name + "_waits", kind, waits.seconds, "{} calls waited {}{}, {} of the time; the longest {}. {}{}.",
          waits.count, time_text(waits.seconds), call.what_for, percent(waits.seconds, run_.seconds),
          time_text(waits.longest),
          round_trips ? "Over the fabric each lock is a round trip, which is part of this. " : "", call.advice);
    }
  }

  void many_small(const std::string& kind, const WindowKind& sums) {
    std::uint64_t mapped = 0;
    for (const RouteInfo& route : kRoutes)
      if (!route.by_thread) mapped += sums.total(route.name).count;
    if (mapped < kManyMapped) return;
    add("many_small", kind, static_cast<double>(mapped) * kMappedOperation,
        "{} operations by load and store. If they are small, the calls themselves are the cost: move more with each "
        "(a derived datatype), or load and store in place after MPI_Win_allocate_shared and MPI_Win_shared_query.",
        mapped);
  }

  void runtime_windows() {
    if (run_.runtime_windows == 0) return;
    add("runtime_windows", "", 0,
        "{} windows (counted at each rank) stayed with the MPI runtime, and are not in these figures; farside has said "
        "why on stderr (farside info tells what this machine allows).",
        run_.runtime_windows);
  }

  const Run& run_;
  std::vector<Advice> advice_;
};

// Says in words what was measured, and of what.
std::string headline(const Run& run) {
  double waiting = 0, operations = 0;
  std::uint64_t windows = 0;
  for (const auto& [kind, sums] : run.kinds) {
    windows += sums.windows;
    operations += sums.slow_operations.seconds;
    waiting += sums.seconds() - sums.slow_operations.seconds;
  }
  return fmt::format(
      "Measured: the one-sided calls of {} on {}, with {} (counted at each rank), from the first window of each "
      "rank to MPI_Finalize: {} at the rank that took longest, {} of all ranks together. {} of this time were "
      "waits in one-sided calls, {} operations by system call or fabric. The rest is not split up: the program, "
      "other MPI calls, loads and stores.\n",
      counted(run.files.size(), "rank"),
      run.hosts.size() == 1 ? run.hosts.begin()->first : counted(run.hosts.size(), "host"), counted(windows, "window"),
      time_text(run.longest_seconds), time_text(run.seconds), percent(waiting, run.seconds),
      percent(operations, run.seconds));
}

}  // namespace

Operations WindowKind::total(const std::string& route) const {
  Operations sum;
  for (const auto& [name, operations] : routes) {
    if (!route.empty() && name != route) continue;
    for (const auto& [operation, each] : operations) sum.add(each);
  }
  return sum;
}

std::uint64_t WindowKind::epochs_of(const std::string& kind) const {
  const auto found = epochs.find(kind);
  return found == epochs.end() ? 0 : found->second;
}

Waits WindowKind::waits_in(const std::string& call) const {
  const auto found = waits.find(call);
  return found == waits.end() ? Waits() : found->second;
}

double WindowKind::seconds() const {
  double sum = slow_operations.seconds;
  for (const auto& [call, each] : waits)
    if (call != "operation") sum += each.seconds;  // slow_operations includes these
  return sum;
}

std::vector<Advice> advise(const Run& run) {
  std::vector<Advice> advice = Rules(run).all();
  double waits = 0;
  for (const auto& [kind, sums] : run.kinds) waits += sums.seconds() - sums.slow_operations.seconds;
  for (std::string& line : run.placement.oversubscribed())
    advice.insert(advice.begin(), {"oversubscribed", "", std::move(line), waits, true});
  if (std::string missing = missing_ranks(run.files); !missing.empty())
    advice.insert(advice.begin(), {"missing_ranks", "", std::move(missing), 0, true});
  for (const std::string& reason : run.left_out)
    advice.insert(advice.begin(), {"left_out", "", "left out: " + reason, 0, true});
  return advice;
}

std::string in_words(const Run& run) {
  std::string text = headline(run);
  std::vector<Advice> advice = advise(run);
  while (!advice.empty() && advice.front().doubt) {
    text += fmt::format("! {}\n", advice.front().text);
    advice.erase(advice.begin());
  }
  if (run.kinds.empty()) return text + "\nNo window was farside's.\n";
  Table time({"where the time went", "time", "share", "calls", "longest"});
  double known = 0;
  for (const auto& [kind, sums] : run.kinds) {
    known += sums.seconds();
    for (const auto& [call, waits] : sums.waits) {
      if (call == "operation") continue;
      time.add(fmt::format("{}: waiting in {}", kind, call), time_text(waits.seconds),
               percent(waits.seconds, run.seconds), waits.count, time_text(waits.longest));
    }
    if (const Waits& slow = sums.slow_operations; slow.count > 0) {
      time.add(fmt::format("{}: operations by system call or fabric", kind), time_text(slow.seconds),
               percent(slow.seconds, run.seconds), slow.count, "-");
    }
  }
  const double rest = std::max(run.seconds - known, 0.0);
  time.add("the rest (not timed)", time_text(rest), percent(rest, run.seconds), "-", "-");
  text += '\n' + time.text();

  Table what({"what was done", "windows", "epochs", "flushes", "operations", "bytes"});
  for (const auto& [kind, sums] : run.kinds) {
    std::uint64_t epochs = 0;
    for (const auto& [name, count] : sums.epochs) epochs += count;
    const Operations all = sums.total();
    what.add(sums.names.empty() ? kind : fmt::format("{} ({})", kind, fmt::join(sums.names, ", ")), sums.windows,
             epochs, sums.flushes + sums.flushes_all, all.count, all.bytes);
  }
  text += '\n' + what.text() + "\nWhat would help, the weightiest first\n";
  for (const Advice& each : advice)
    text += fmt::format("- {}{}{}\n", each.kind, each.kind.empty() ? "" : ": ", each.text);
  if (advice.empty()) text += "- nothing that these figures show\n";
  return text;
}

}  // namespace farside::tools::explain
