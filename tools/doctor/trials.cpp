// SPDX-License-Identifier: BSD-3-Clause
// Trials by the ranks: providers between the hosts, windows, and puts between the nodes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/common/collectives.hpp"
#include "tools/common/host.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/doctor/peers.hpp"
#include "transport/base/files.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside::tools {
namespace {

using Addresses = std::vector<FabricAddress>;

Addresses gather_addresses(const Result<OpenEndpoint*>& endpoint, int hosts, MPI_Comm comm) {
  const FabricAddress mine = endpoint ? endpoint.value()->address() : FabricAddress();
  Addresses all(static_cast<std::size_t>(hosts));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm);
  return all;
}

// One round: each host tries the one `step` behind it. Returns the reason of this host's failure.
std::string run_round(const Result<OpenEndpoint*>& endpoint, const ProviderTrials& trials, const Addresses& addresses,
                      int step, std::uint64_t id, MPI_Comm comm) {
  const auto [rank, hosts] = Ranks(comm);
  const int to = (rank + step) % hosts;
  std::optional<ProviderTrial> trial;
  Status status;
  if (endpoint) status = trial.emplace(*endpoint.value(), rank, hosts, id).begin();
  sleeping_barrier(comm);
  if (status && endpoint && trials.offers[static_cast<std::size_t>(to)].trouble.empty()) {
    const FabricAddress& address = addresses[static_cast<std::size_t>(to)];
    endpoint.value()->set_on_trial(endpoint.value()->insert(address), true);
    status = trial->run(to, address, *endpoint.value());
  }
  sleeping_barrier(comm);
  return status ? std::string() : status.error().text;
}

}  // namespace

std::vector<std::string> providers_to_try(const Settings& settings) {
  if (!settings.provider.empty()) return {settings.provider};
  return {preferred_providers().begin(), preferred_providers().end()};
}

static ProviderTrials try_provider(const std::string& provider, const Result<OpenEndpoint*>& endpoint, MPI_Comm comm) {
  const int hosts = Ranks(comm).all;
  const Json mine{{"device", endpoint ? endpoint.value()->device() : ""},
                  {"trouble", endpoint ? "" : endpoint.error().text}};
  ProviderTrials trials;
  trials.provider = provider;
  for (const std::string& text : gather_texts(json_text(mine), comm)) {
    const auto offer = parse_json(text);
    trials.offers.push_back({offer.at("device"), offer.at("trouble")});
  }
  const Addresses addresses = gather_addresses(endpoint, hosts, comm);
  std::uint64_t id = random_bits();
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
  Json failures = Json::array();
  for (int step = 1; step < hosts; ++step) {
    id = mixed(id);
    failures.push_back(run_round(endpoint, trials, addresses, step, id, comm));
  }
  for (const std::string& text : gather_texts(json_text(failures), comm)) {
    const auto of_host = parse_json(text);
    const std::size_t from = trials.trouble.size();
    std::vector<std::string> row(static_cast<std::size_t>(hosts));
    for (std::size_t i = 0; i < of_host.size(); ++i) row[(from + i + 1) % row.size()] = of_host[i];
    trials.trouble.push_back(std::move(row));
  }
  return trials;
}

Json try_hosts(const Settings& settings, MPI_Comm comm) {
  std::vector<Json> hosts;
  for (const std::string& text : gather_texts(json_text(host_facts()), comm)) hosts.push_back(parse_json(text));
  NoProgress no_runtime;  // the waits call no MPI
  Statistics statistics;
  ProviderChoice choice(settings, no_runtime, statistics);
  std::vector<ProviderTrials> trials;
  for (const std::string& provider : providers_to_try(settings)) {
    const Providers one = Providers{1} << trials.size();
    Result<OpenEndpoint*> endpoint = choice.try_best(one);
    if (std::string why = choice.why_not(one); !endpoint && !why.empty())  // else the error may be another's
      endpoint = Error{ErrorKind::kNoRoute, std::move(why)};
    trials.push_back(try_provider(provider, endpoint, comm));
  }
  return matrix_of(std::move(hosts), trials);
}

// ---- windows ----

// Captures what this process prints on stderr, because farside prints its reasons there (transport/base/log.hpp), and
// prints it at the end.
class OwnErrors {
 public:
  OwnErrors() : stderr_(dup(STDERR_FILENO)), kept_(memfd_create("stderr", MFD_CLOEXEC)) {
    std::fflush(stderr);
    if (kept_.valid()) dup2(kept_.get(), STDERR_FILENO);
  }
  ~OwnErrors() { end(); }

  // Ends the capture. Returns the lines of farside, without their ranks and without repetitions.
  std::vector<std::string> end() {
    std::vector<std::string> reasons;
    if (!kept_.valid() || !stderr_.valid()) return reasons;
    std::fflush(stderr);
    dup2(stderr_.get(), STDERR_FILENO);
    std::string text(1 << 16, '\0');
    const ssize_t bytes = pread(kept_.get(), text.data(), text.size(), 0);
    text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    kept_.reset();
    for (const std::string& line : split(text, "\n")) {
      const std::size_t begin = line.find(": ");
      if (line.empty()) continue;
      std::fprintf(stderr, "%s\n", line.c_str());
      if (!line.starts_with("farside") || begin == std::string::npos) continue;
      add_once(reasons, line.substr(begin + 2));
    }
    return reasons;
  }

 private:
  UniqueFd stderr_, kept_;
};

// ---- window check ----

namespace {

using Word = std::int64_t;

// The memory of each rank.
constexpr int kBlockWords = 64;
struct Memory {
  Word counter;  // at rank 0: how often the contended lock was held
  Word sum;
  std::array<Word, kBlockWords> locked, fenced;
};
constexpr MPI_Aint kWord = sizeof(Word);
constexpr MPI_Aint kCounter = 0, kSum = 1, kLocked = 2, kFenced = kLocked + kBlockWords;  // displacements in words

constexpr int kContendedLocks = 4;  // of each rank
constexpr Word kAddend = 3;

// The data that an origin puts at its target.
std::array<Word, kBlockWords> pattern(int origin, Word salt) {
  std::array<Word, kBlockWords> words{};
  for (int i = 0; i < kBlockWords; ++i) words[static_cast<std::size_t>(i)] = (origin + 1) * 1000 + salt + i;
  return words;
}

// One rank's use of the window. After an error it carries out only the calls that other ranks wait for.
class Use {
 public:
  Use(const WindowRole& role, Watchdog& watchdog) : role_(role), watchdog_(watchdog), ranks_(role.comm) {}

  // Returns whether there is a window of farside. If not, no rank has one.
  bool make() {
    MPI_Comm_set_errhandler(role_.comm, MPI_ERRORS_RETURN);
    watchdog_.at(role_.call.c_str());
    void* base = &own_;
    const int code = role_.call == "MPI_Win_create"
                         ? MPI_Win_create(base, sizeof(Memory), kWord, MPI_INFO_NULL, role_.comm, &window_)
                         : MPI_Win_allocate(sizeof(Memory), kWord, MPI_INFO_NULL, role_.comm, &base, &window_);
    if (code != MPI_SUCCESS) {
      trouble_ = mpi_error(role_.call.c_str(), code);
      return false;
    }
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
    memory_ = static_cast<Memory*>(base);
    if (routes().empty()) trouble_ = "the window stayed with the MPI runtime";
    return trouble_.empty();
  }

  void use() {
    clear();
    if (role_.target != MPI_PROC_NULL) {
      put_and_get();
      accumulate();
    }
    count();
    fence();
    barrier();
    check_own_memory();
    barrier();
  }

  void free() {
    if (window_ == MPI_WIN_NULL) return;
    called("MPI_Win_free", MPI_Win_free(&window_));
  }

  std::string routes() const { return info("farside_route"); }
  std::string info(const char* key) const { return window_ == MPI_WIN_NULL ? "" : window_info(window_, key); }
  const std::string& trouble() const { return trouble_; }

 private:
  bool called(const char* call, int code) {
    if (code != MPI_SUCCESS) wrong(mpi_error(call, code));
    return code == MPI_SUCCESS;
  }
  // A call that may wait for other ranks.
  template <class... Parameters, class... Arguments>
  bool waits(const char* name, int (*call)(Parameters...), Arguments... arguments) {
    watchdog_.at(name);
    return called(name, call(arguments...));
  }
  void wrong(const std::string& text) {
    if (trouble_.empty()) trouble_ = text;
  }

  void barrier() {
    watchdog_.at("MPI_Ibarrier");
    sleeping_barrier(role_.comm);
  }

  // An epoch of a lock at a rank. Returns whether all calls of `body`, which returns the same, have succeeded.
  template <class Body>
  bool locked(int kind, int at, Body&& body) {
    if (!waits("MPI_Win_lock", MPI_Win_lock, kind, at, 0, window_)) return false;
    const bool done = body();
    return waits("MPI_Win_unlock", MPI_Win_unlock, at, window_) && done;
  }

  void clear() {
    locked(MPI_LOCK_EXCLUSIVE, ranks_.mine, [&] {
      std::memset(memory_, 0, sizeof *memory_);
      return true;
    });
    barrier();
  }

  bool put(const std::array<Word, kBlockWords>& words, MPI_Aint to) {
    return called("MPI_Put",
                  MPI_Put(words.data(), kBlockWords, MPI_INT64_T, role_.target, to, kBlockWords, MPI_INT64_T, window_));
  }

  void put_and_get() {
    const auto out = pattern(ranks_.mine, 0);
    std::array<Word, kBlockWords> in{};
    const bool done = locked(MPI_LOCK_EXCLUSIVE, role_.target, [&] { return put(out, kLocked); }) &&
                      locked(MPI_LOCK_SHARED, role_.target, [&] {
                        return called("MPI_Get", MPI_Get(in.data(), kBlockWords, MPI_INT64_T, role_.target, kLocked,
                                                         kBlockWords, MPI_INT64_T, window_));
                      });
    if (done && in != out) wrong("MPI_Get returned other data than MPI_Put had written");
  }

  void accumulate() {
    if (!waits("MPI_Win_lock_all", MPI_Win_lock_all, 0, window_)) return;
    Word before = -1;
    const bool issued = called("MPI_Accumulate", MPI_Accumulate(&kAddend, 1, MPI_INT64_T, role_.target, kSum, 1,
                                                                MPI_INT64_T, MPI_SUM, window_)) &&
                        called("MPI_Fetch_and_op",
                               MPI_Fetch_and_op(&kAddend, &before, MPI_INT64_T, role_.target, kSum, MPI_SUM, window_));
    const bool flushed = waits("MPI_Win_flush", MPI_Win_flush, role_.target, window_);
    if (issued && flushed && before != kAddend) wrong("MPI_Fetch_and_op did not see MPI_Accumulate of the same rank");
    waits("MPI_Win_unlock_all", MPI_Win_unlock_all, window_);
  }

  // All ranks count at rank 0 by a get and a put, which only the exclusive lock makes one operation.
  void count() {
    for (int i = 0; i < kContendedLocks; ++i) {
      const bool done = locked(MPI_LOCK_EXCLUSIVE, 0, [&] {
        Word value = 0;
        if (!called("MPI_Get", MPI_Get(&value, 1, MPI_INT64_T, 0, kCounter, 1, MPI_INT64_T, window_)) ||
            !called("MPI_Win_flush", MPI_Win_flush(0, window_)))
          return false;
        ++value;
        return called("MPI_Put", MPI_Put(&value, 1, MPI_INT64_T, 0, kCounter, 1, MPI_INT64_T, window_)) &&
               called("MPI_Win_flush", MPI_Win_flush(0, window_));
      });
      if (!done) return;
    }
  }

  void fence() {
    const auto out = pattern(ranks_.mine, 500);
    if (!waits("MPI_Win_fence", MPI_Win_fence, MPI_MODE_NOPRECEDE, window_)) return;
    if (role_.target != MPI_PROC_NULL) put(out, kFenced);
    called("MPI_Win_fence", MPI_Win_fence(MPI_MODE_NOSUCCEED, window_));
  }

  void check_own_memory() {
    Memory seen{};
    const bool done = locked(MPI_LOCK_SHARED, ranks_.mine, [&] {
      seen = *memory_;
      return true;
    });
    if (!done) return;
    if (role_.has_origin && seen.sum != 2 * kAddend)
      wrong(fmt::format("accumulates gave {}, not {}", seen.sum, 2 * kAddend));
    const auto from_one_origin = [](const auto& block, Word salt) {
      const auto origin = static_cast<int>(block[0] - salt) / 1000 - 1;
      return block == pattern(origin, salt);
    };
    if (role_.has_origin && !from_one_origin(seen.locked, 0)) wrong("a put under a lock has not arrived whole");
    if (role_.has_origin && !from_one_origin(seen.fenced, 500)) wrong("a put in a fence has not arrived whole");
    const Word counted = Word{kContendedLocks} * ranks_.all;
    if (ranks_.mine == 0 && seen.counter != counted)
      wrong(fmt::format("under exclusive locks {} of {} increments were counted", seen.counter, counted));
  }

  const WindowRole& role_;
  Watchdog& watchdog_;
  const Ranks ranks_;
  MPI_Win window_ = MPI_WIN_NULL;
  Memory own_{};  // of MPI_Win_create: private memory
  Memory* memory_ = nullptr;
  std::string trouble_;
};

}  // namespace

Json check_window(const WindowRole& role, Watchdog& watchdog) {
  OwnErrors errors;
  Use use(role, watchdog);
  if (use.make()) use.use();
  Json entry{{"call", role.call},
             {"among", role.among},
             {"wanted", role.wanted},
             {"routes", use.routes()},
             {"provider", use.info("farside_provider")},
             {"device", use.info("farside_device")}};
  use.free();
  const std::vector<std::string> reasons = errors.end();
  std::string trouble = use.trouble();
  if (!trouble.empty() && !reasons.empty()) trouble += fmt::format(" ({})", fmt::join(reasons, " / "));
  entry["trouble"] = trouble;
  return entry;
}

std::string mpi_error(const char* call, int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::string words(text.data(), static_cast<std::size_t>(length));
  std::ranges::replace(words, '\n', ' ');
  return fmt::format("{}: {}", call, words);
}

// ---- between nodes ----

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int kLargeBytes = 1 << 20;
constexpr int kWarmUp = 3;
constexpr int kLeastPuts = 3;
constexpr int kMostPuts = 1000;

// The median time of a put with a flush, in microseconds; or the error.
struct PutTime {
  double median = 0;
  std::string trouble;
};
PutTime time_puts(MPI_Win window, int target, int bytes, std::chrono::milliseconds time) {
  const std::vector<std::byte> data(static_cast<std::size_t>(bytes));
  std::vector<double> times;
  const Clock::time_point end = Clock::now() + time;
  for (int i = 0; i < kMostPuts && (i < kWarmUp + kLeastPuts || Clock::now() < end); ++i) {
    const Clock::time_point begin = Clock::now();
    int code = MPI_Put(data.data(), bytes, MPI_BYTE, target, 0, bytes, MPI_BYTE, window);
    if (code != MPI_SUCCESS) return {0, mpi_error("MPI_Put", code)};
    code = MPI_Win_flush(target, window);
    if (code != MPI_SUCCESS) return {0, mpi_error("MPI_Win_flush", code)};
    if (i >= kWarmUp) times.push_back(Microseconds(Clock::now() - begin).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return {*middle, {}};
}

// In which of three rounds a node is the origin, so that it is no target in the same one.
int round_of(int node, int nodes) { return node == nodes - 1 && nodes % 2 == 1 ? 2 : node % 2; }

}  // namespace

Json measure_link(MPI_Comm nodes, Watchdog& watchdog) {
  const auto [node, count] = Ranks(nodes);
  const int next = (node + 1) % count;
  Json link{{"from", node}, {"to", next}, {"latency_us", 0.0}, {"megabytes_per_second", 0.0}};
  link["trouble"] = "";
  OwnErrors errors;
  void* base = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Comm_set_errhandler(nodes, MPI_ERRORS_RETURN);
  watchdog.at("MPI_Win_allocate");
  const int code = MPI_Win_allocate(kLargeBytes, 1, MPI_INFO_NULL, nodes, &base, &window);
  if (code != MPI_SUCCESS) {
    link["trouble"] = mpi_error("MPI_Win_allocate", code);
    return link;
  }
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  MPI_Win_lock_all(0, window);
  for (int round = 0; round < 3; ++round) {
    watchdog.at("MPI_Barrier");
    MPI_Barrier(nodes);
    if (round != round_of(node, count)) continue;
    watchdog.at("MPI_Win_flush");
    const PutTime small = time_puts(window, next, 8, std::chrono::milliseconds(50));
    const PutTime large =
        small.trouble.empty() ? time_puts(window, next, kLargeBytes, std::chrono::milliseconds(100)) : small;
    link["latency_us"] = small.median;
    if (large.median > 0) link["megabytes_per_second"] = kLargeBytes / large.median;  // bytes per microsecond
    link["trouble"] = large.trouble;
  }
  watchdog.at("MPI_Barrier");
  MPI_Barrier(nodes);
  watchdog.at("MPI_Win_unlock_all");
  MPI_Win_unlock_all(window);
  watchdog.at("MPI_Win_free");
  MPI_Win_free(&window);
  return link;
}

}  // namespace farside::tools
