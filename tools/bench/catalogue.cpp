// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/catalogue.hpp"

#include <algorithm>
#include <array>
#include <tuple>

namespace farside::bench {
namespace {

constexpr double kMebi = 1024 * 1024;

using enum Unit;
using enum TargetState;
using enum Selection;

struct Size {
  std::string name, title;
  double bytes;
  Unit unit = kMicroseconds;
};
const std::vector<Size> kSizes = {{"8", "8 B", 8},
                                  {"64", "64 B", 64},
                                  {"512", "512 B", 512},
                                  {"4kib", "4 KiB", 4096},
                                  {"32kib", "32 KiB", 32768},
                                  {"256kib", "256 KiB", 262144},
                                  {"1mib", "1 MiB", kMebi},
                                  {"4mib", "4 MiB", 4 * kMebi, kMegabytes}};

// These are measured while the target is away, too.
const std::vector<MeasureInfo> kAlsoBusy = {
    {"put_flush", "put 8 B + flush", kMicroseconds, kInBarrier, kDemo, "put_size", 8, "bare_write"},
    {"get_flush", "get 8 B + flush", kMicroseconds, kInBarrier, kDemo, "get_size", 8, "bare_read"},
    {"fetch_and_op", "fetch_and_op int64 + flush", kMicroseconds, kInBarrier, kDemo, "basic", 0, "bare_fetch_add"},
    {"compare_and_swap", "compare_and_swap int64 + flush", kMicroseconds, kInBarrier, kDemo, "basic", 0,
     "bare_compare_swap"},
    {"accumulate", "accumulate 1 double + flush", kMicroseconds, kInBarrier, kDefault, "accumulate"},
    {"accumulate_1024", "accumulate 1024 doubles + flush", kMicroseconds, kInBarrier, kDefault, "accumulate"},
    {"puts_64", "64 puts of 8 B, one flush", kMicroseconds, kInBarrier, kDefault, "basic", 0, "bare_writes_64"},
    {"vector_put", "put 1024 x 8 B, strided there + flush", kMicroseconds, kInBarrier, kNamed, "derived"},
    {"lock_put_unlock", "lock-put-unlock", kMicroseconds, kInBarrier, kDemo},
    {"bare_write", "bare libfabric: write 8 B", kMicroseconds, kServes, kDefault, "bare_write_size", 8},
    {"bare_read", "bare libfabric: read 8 B", kMicroseconds, kServes, kNamed, "bare_read_size", 8},
    {"bare_fetch_add", "bare libfabric: fetch-add int64", kMicroseconds, kServes, kDemo},
    {"bare_compare_swap", "bare libfabric: compare-and-swap int64", kMicroseconds, kServes},
    {"bare_writes_64", "bare libfabric: 64 writes of 8 B", kMicroseconds, kServes},
};

const std::vector<MeasureInfo> kOthers = {
    {"shared_lock_put_unlock", "shared lock-put-unlock"},
    {"fence_put", "fence with a put", kMicroseconds, kTakesPart, kDefault},
    {"pscw_put", "post-start-put-complete-wait", kMicroseconds, kTakesPart, kDefault},
    {"notify_put_asleep", "put_notify to a rank that sleeps: 8 B there, 8 B back", kMicroseconds, kTakesPart, kNamed,
     "notify", 8, "bare_message_sleep"},
    {"bare_message_sleep", "bare libfabric: message: 8 B there, 8 B back, target sleeps", kMicroseconds, kServesAsleep,
     kNamed, "notify", 8},
    {"bare_lock", "bare memory: two fetch-adds and a store", kMicroseconds, kSpins, kDefault},
    {"bare_exchange", "bare memory: a word there, a word back", kMicroseconds, kSpins, kDefault},
    {"first_window", "first window of the process, with a put", kMicroseconds, kTakesPart, kNamed, "first_window"},
    {"window_allocate", "MPI_Win_allocate and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},
    {"window_create", "MPI_Win_create and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},
    {"window_dynamic", "MPI_Win_create_dynamic and MPI_Win_free", kMicroseconds, kTakesPart, kNamed, "windows"},
};

// The same measure while the target sleeps or computes.
MeasureInfo while_away(const MeasureInfo& of, bool computes) {
  const char* suffix = computes ? "_compute" : "_sleep";
  MeasureInfo info = of;
  if (info.name.ends_with("_flush")) info.name.erase(info.name.size() - 6);
  info.name += suffix;
  info.title += computes ? ", target computes" : ", target sleeps";
  if (is_bare(of))
    info.target = computes ? kServesBusy : kServesAsleep;
  else
    info.target = computes ? kComputes : kSleeps;
  info.group = "busy";
  info.x = 0;
  if (!info.bare.empty()) info.bare += suffix;
  info.selection = kNamed;
  if (of.name == "lock_put_unlock" || of.name == "bare_fetch_add") info.selection = computes ? kDemo : kDefault;
  if (of.name == "fetch_and_op" && computes) info.selection = kDefault;
  return info;
}

std::vector<MeasureInfo> make_catalogue() {
  std::vector<MeasureInfo> all = kAlsoBusy;
  all.insert(all.end(), kOthers.begin(), kOthers.end());
  for (const Size& size : kSizes) {
    const auto add = [&](const std::string& start, const std::string& title, TargetState target,
                         const std::string& group, const std::string& bare = {}) {
      const bool by_default = target == kInBarrier && size.unit == kMegabytes;
      all.push_back({start + size.name, title, size.unit, target, by_default ? kDefault : kNamed, group, size.bytes,
                     bare.empty() ? "" : bare + size.name});
    };
    add("bare_copy_", "bare memory: memcpy of " + size.title + " to the peer", kSpins, "bare_copy_size");
    if (size.bytes > 8) {
      for (const std::string what : {"put", "get"}) {
        const std::string bare = what == "put" ? "write" : "read";
        add(what + "_", what + " " + size.title + " + flush", kInBarrier, what + "_size", "bare_" + bare + "_");
        add("bare_" + bare + "_", "bare libfabric: " + bare + " " + size.title, kServes, "bare_" + bare + "_size");
      }
    }
    if (size.unit != kMicroseconds) continue;
    const std::string way = size.title + " there, 8 B back";
    add("notify_put_", "put_notify: " + way, kTakesPart, "notify", "bare_message_");
    add("notify_send_", "put, flush, empty message: " + way, kTakesPart, "notify", "bare_message_");
    add("notify_message_", "MPI_Send: " + way, kTakesPart, "notify", "bare_message_");
    add("bare_flag_", "bare memory: memcpy and a flag: " + way, kSpins, "notify");
    add("bare_message_", "bare libfabric: message: " + way, kServes, "notify");
    if (size.name != "512" && size.name != "32kib") continue;
    for (const auto& [name, title] :
         {std::pair("notify", "put_notify"), std::pair("fence", "put, fence"),
          std::pair("post", "post-start-put-complete-wait"), std::pair("send", "MPI_Isend")}) {
      add(std::string("halo_") + name + "_", "halo exchange, " + size.title + " each way: " + title, kTakesPart,
          "notify");
      all.back().ranks = kAllRanks;
    }
  }
  for (const MeasureInfo& info : kAlsoBusy)
    for (const bool computes : {false, true}) all.push_back(while_away(info, computes));
  for (const int ms : {50, 100, 200, 500, 1000}) {
    const std::string time = ms == 1000 ? "1 s" : std::to_string(ms) + " ms";
    const std::string name = ms == 1000 ? "1s" : std::to_string(ms) + "ms";
    all.push_back({"progress_" + name, "lock-put-unlock, target computes " + time, kMicroseconds, kComputes, kNamed,
                   "progress", ms / 1000.0});
  }
  for (int n = 1; n <= 64; n *= 2) {
    const std::string number = std::to_string(n), ranks = number + (n == 1 ? " rank" : " ranks");
    all.push_back({"contention_" + number, "lock-put-unlock, " + ranks + ", one target", kMicroseconds, kTakesPart,
                   kNamed, "contention", static_cast<double>(n), "", std::max(n, 2)});
    all.push_back({"rate_" + number, "message rate, " + ranks, kPerSecond, kTakesPart, kNamed, "rate",
                   static_cast<double>(n), "", std::max(n, 2)});
    all.push_back({"fetch_rate_" + number,
                   "fetch_and_op rate, " + number + (n == 1 ? " origin" : " origins") + ", one target", kPerSecond,
                   kTakesPart, kNamed, "fetch_rate", static_cast<double>(n), "", n + 1});
  }
  const auto add_contended = [&](const std::string& row, const std::string& title) {
    const auto add = [&](const std::string& suffix, const std::string& what, Unit unit) {
      all.push_back(
          {"contended_" + row + suffix, title + what, unit, kTakesPart, kNamed, "contended", 0, "", kAllRanks});
    };
    add("", "", kMicroseconds);
    add("_fair", ": slowest to fastest rank", kRatio);
    add("_wait", ": longest wait", kMicroseconds);
  };
  add_contended("exclusive", "contended lock-get-put-unlock");
  add_contended("fetch_and_op", "contended lock-fetch_and_op-unlock");
  add_contended("readers_50", "contended locks, 50 % readers");
  add_contended("readers_95", "contended locks, 95 % readers");
  add_contended("targets", "contended locks, random targets");
  add_contended("lock_all", "contended locks, 50 % lock_all");
  const auto add_threads = [&](const std::string& group, const std::string& title) {
    const bool own_targets = group.starts_with("targets");
    for (const bool sleeps : {false, true}) {
      for (const int n : {1, 2, 4}) {
        const std::string suffix = sleeps ? "_sleep" : "", number = std::to_string(n);
        all.push_back({"threads_" + group + "_" + number + suffix,
                       title + ", " + number + (n == 1 ? " thread" : " threads") + (sleeps ? ", target sleeps" : ""),
                       kPerSecond, sleeps ? kSleeps : kInBarrier, kNamed, "threads_" + group + suffix,
                       static_cast<double>(n), "", own_targets ? n + 1 : 2, true});
      }
    }
  };
  add_threads("put", "put + flush");
  add_threads("get", "get + flush");
  add_threads("fetch", "fetch_and_op + flush");
  add_threads("accumulate", "accumulate 1 int64 + flush");
  add_threads("own_put", "own windows: put + flush");
  add_threads("own_fetch", "own windows: fetch_and_op + flush");
  add_threads("own_lock", "own windows: lock-put-unlock");
  add_threads("targets_put", "own targets: put + flush");
  add_threads("targets_fetch", "own targets: fetch_and_op + flush");
  add_threads("targets_lock", "own targets: lock-put-unlock");
  add_threads("bare", "bare memory: atomic store");
  std::ranges::stable_sort(all, {}, [](const MeasureInfo& info) {
    const bool named = info.selection == kNamed;
    return std::tuple(info.group != "first_window", named, is_bare(info), named ? info.group : "");
  });
  return all;
}

}  // namespace

const std::vector<MeasureInfo>& catalogue() {
  static const std::vector<MeasureInfo> all = make_catalogue();
  return all;
}

const MeasureInfo* find_measure(std::string_view name) {
  const auto found = std::ranges::find_if(catalogue(), [name](const MeasureInfo& info) { return info.name == name; });
  return found == catalogue().end() ? nullptr : &*found;
}

bool named(const std::vector<std::string>& words, const MeasureInfo& info) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return word == info.name || word == info.group || word == "all"; });
}

bool known_word(const std::string& word) {
  return std::ranges::any_of(catalogue(), [&word](const MeasureInfo& info) { return named({word}, info); });
}

std::string_view unit_name(Unit unit) {
  constexpr std::array<std::string_view, 4> kNames = {"us", "MB/s", "1/s", "ratio"};
  return kNames[static_cast<std::size_t>(unit)];
}

}  // namespace farside::bench
