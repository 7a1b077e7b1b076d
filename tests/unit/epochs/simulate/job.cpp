// SPDX-License-Identifier: BSD-3-Clause
#include "tests/unit/epochs/simulate/job.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_table.hpp"
#include "epochs/rules/epoch_state.hpp"
#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/make_space.hpp"

namespace farside::simulate {
namespace {

// The collectives of the ranks of the first node.
class NodeCollectives {
 public:
  explicit NodeCollectives(int members) : members_(members), barrier_(members) {}
  int members() const { return members_; }
  void wait() { barrier_.arrive_and_wait(); }
  // All members get the "or" of the words. The ranks of other nodes say the same as those of this one.
  void combine(std::span<std::uint64_t> words) {
    wait();
    {
      const std::scoped_lock held(mutex_);
      for (std::size_t i = 0; i < words.size(); ++i) combined_[i] |= words[i];
    }
    wait();
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = combined_[i];
    wait();
    combined_ = {};
  }

 private:
  int members_;
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::array<std::uint64_t, 8> combined_{};
};

FabricAddress address_of(int rank) {
  FabricAddress address;
  address.identity = static_cast<std::uint64_t>(rank) + 1;
  return address;
}

class CountingGroup final : public Group {
 public:
  CountingGroup(int rank, int ranks, NodeCollectives& collectives) : Group(rank, ranks), collectives_(collectives) {}
  Status combine(std::span<std::uint64_t> words) override {
    (void)count(words.size_bytes());
    collectives_.combine(words);
    return {};
  }
  Status take_lowest(int&) override { return count(sizeof(int)); }
  Status broadcast(std::span<std::byte> text, int) override { return count(text.size()); }
  Status gather(std::span<const std::byte> own, std::span<std::byte> all) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const FabricAddress address = address_of(rank);
      std::memcpy(all.data() + static_cast<std::size_t>(rank) * own.size(), &address, own.size());
    }
    return count(own.size());
  }

  Status count(std::size_t more) {
    ++collectives;
    bytes += more;
    largest = std::max(largest, more);
    return {};
  }

  std::size_t collectives = 0, bytes = 0, largest = 0;

 private:
  // The other nodes have nothing to add to the words of this one.
  Status combine_leaders(std::span<std::uint64_t> words) override { return count(words.size_bytes()); }
  NodeCollectives& collectives_;
};

// Takes operations, and completes them when it is told to.
class CountingEndpoint final : public Endpoint {
 public:
  CountingEndpoint(int rank, bool keys_are_chosen) : address_(address_of(rank)), chosen_(keys_are_chosen) {}
  const FabricAddress& address() const override { return address_; }
  Peer insert(const FabricAddress& address) override {
    return peers_.try_emplace(address.identity, peers_.size()).first->second;
  }
  Result<Registration> register_memory(void* base, std::size_t, std::uint64_t wanted) override {
    if (chosen_) return Registration{nullptr, {0, wanted}};
    return Registration{nullptr, {reinterpret_cast<std::uint64_t>(base), static_cast<std::uint32_t>(wanted)}};
  }
  bool keys_are_chosen() const override { return chosen_; }
  Status write(Pending& pending, const Place&, const void*, std::size_t) override { return take(pending); }
  Status read(Pending& pending, const Place&, void*, std::size_t) override { return take(pending); }
  bool nic_atomics() const override { return false; }
  Status control(Pending& pending, const Place&, const ControlStep&, std::uint64_t*) override { return take(pending); }
  Status request(Pending& pending, Peer, const HandlerRequest& request, std::unique_ptr<OperationList>) override {
    if (request.header.kind != MessageKind::kDescribe) return take(pending);
    ++descriptions;
    TargetDescription answer;
    answer.bytes = std::uint64_t{1} << 20;
    answer.unit = 1;
    std::memcpy(request.fetched.data(), &answer, std::min(request.fetched.size(), sizeof answer));
    return {};
  }
  std::uint32_t interruptions() const override { return 0; }
  const PeerLosses& losses(Peer) override { return losses_; }
  bool acknowledges_notifications() const override { return false; }
  bool publish(std::uint64_t, const MessageHandler::ServedSpace&) override { return true; }
  void withdraw(std::uint64_t) override {}

  void complete_all() {
    for (Pending* pending : under_way_) pending->completed(Pending::kMessages);
    under_way_.clear();
  }

  std::size_t descriptions = 0;

 private:
  Status take(Pending& pending) {
    pending.issued(Pending::kMessages);
    under_way_.push_back(&pending);
    return {};
  }

  const FabricAddress address_;
  const bool chosen_;
  std::unordered_map<std::uint64_t, Peer> peers_;
  std::vector<Pending*> under_way_;
  PeerLosses losses_;
};

struct LockTraits {
  static constexpr std::size_t kMostRanks = 16;
  template <class T>
  using List = std::vector<T>;
  struct Mutex {};
  struct Guard {
    explicit Guard(Mutex&) {}
  };
};

// What one rank has for a window: what pmpi/ has, less the objects of the MPI runtime.
struct SimulatedWindow {
  SimulatedWindow(std::unique_ptr<Space> made, std::uint64_t id)
      : space(std::move(made)),
        control(*space),
        epoch(space->ranks()),
        locks(space->rank(), space->ranks(), static_cast<int>(id % static_cast<std::uint64_t>(space->ranks()))) {
    locks.locks().reserve(1);
  }
  std::unique_ptr<Space> space;
  ControlMemory control;
  epochs::EpochState epoch;
  epochs::LockTable<LockTraits> locks;
};

double heap_bytes() {
  malloc_trim(0);
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

struct Shared {
  double bytes = 0;     // pages that exist, each once
  double mappings = 0;  // of all threads
  bool counted = true;  // false: this user may not look at the files (root may)
};

// The segments of farside in this process.
Shared shared_memory() {
  constexpr double kBlock = 512;  // of st_blocks (stat(2))
  Shared shared;
  std::set<std::string> seen;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:farside") == std::string::npos) continue;
    shared.mappings += 1;
    std::istringstream fields(line);
    std::string range, rights, offset, device, inode;
    fields >> range >> rights >> offset >> device >> inode;
    if (!seen.insert(inode).second) continue;
    // The file itself (proc(5), map_files).
    struct stat file {};
    if (stat(("/proc/self/map_files/" + range).c_str(), &file) == 0) {
      shared.bytes += static_cast<double>(file.st_blocks) * kBlock;
    } else {
      shared.counted = false;
    }
  }
  return shared;
}

// What is measured between the steps, by rank 0 while the others wait.
struct Moment {
  double heap = 0;
  Shared shared;
};

class Job {
 public:
  explicit Job(const JobSettings& settings)
      : settings_(settings), members_(std::min(settings.per_node, settings.ranks)), collectives_(members_) {}

  Result<JobFigures> run() {
    mallopt(M_ARENA_MAX, 1);
    std::vector<std::thread> others;
    for (int rank = 1; rank < members_; ++rank) others.emplace_back([this, rank] { live(rank); });
    live(0);
    for (std::thread& other : others) other.join();
    if (failed_) return *failed_;
    return figures_;
  }

 private:
  Moment measure(int rank) {
    collectives_.wait();
    Moment moment;
    if (rank == 0) moment = {heap_bytes(), shared_memory()};
    collectives_.wait();
    return moment;
  }
  void fail(const Error& error) {
    const std::scoped_lock held(mutex_);
    if (!failed_) failed_ = error;
  }
  std::unique_ptr<NodeGroup> join_node(int rank) {
    std::optional<Result<std::unique_ptr<NodeGroup>>> node;
    if (rank == 0) {
      node = NodeGroup::lead(members_);
      if (*node) place_ = node->value()->place();
    }
    collectives_.wait();
    if (rank != 0) node = NodeGroup::join(place_, rank, members_);
    if (*node) return std::move(node->value());
    fail(node->error());
    return nullptr;
  }
  Result<std::unique_ptr<SimulatedWindow>> make_window(Group& group, CountingEndpoint& endpoint) {
    SpaceMaking making;
    making.request.rank = group.rank();
    making.request.ranks = group.ranks();
    making.request.id = group.next_id();
    making.request.control_bytes = epochs::ControlBlock::bytes(group.ranks());
    making.request.data_bytes = static_cast<std::uint64_t>(settings_.data_bytes);
    if (!settings_.alike) making.request.data_bytes += static_cast<std::uint64_t>(group.rank());
    making.request.unit = 1;
    making.endpoint = &endpoint;
    Result<MadeSpace> made = make_space(making, group);
    if (!made) return made.error();
    return std::make_unique<SimulatedWindow>(std::move(made.value().space), making.request.id);
  }
  void live(int rank);
  void use(int rank, SimulatedWindow& window, int count) const;

  const JobSettings settings_;
  const int members_;
  NodeCollectives collectives_;
  SegmentPlace place_;
  std::mutex mutex_;
  std::optional<Error> failed_;
  JobFigures figures_;
};

// The targets are spread over the other nodes.
void Job::use(int rank, SimulatedWindow& window, int count) const {
  static const std::array<std::byte, 8> data{};
  const int others = settings_.ranks - members_;
  for (int i = 0; i < count && others > 0; ++i) {
    const auto step = static_cast<std::int64_t>(others) * i / settings_.touched;
    const int target = members_ + static_cast<int>((step + rank) % others);
    (void)window.space->route(target).carry_out(target, DataOperation::put(0, data.data(), data.size()));
  }
}

void Job::live(int rank) {
  const auto windows = static_cast<std::size_t>(settings_.windows);
  CountingGroup group(rank, settings_.ranks, collectives_);
  CountingEndpoint endpoint(rank, settings_.alike);
  std::vector<std::unique_ptr<SimulatedWindow>> made;
  made.reserve(windows + 1);
  const Moment start = measure(rank);
  std::unique_ptr<NodeGroup> node = join_node(rank);
  collectives_.wait();
  if (failed_) return;
  node->publish_member(rank, Process::instance());
  const Result<std::uint64_t> id = group.handshake({});
  if (!id) return fail(id.error());
  group.join(std::move(node), rank, id.value());
  const auto make_one = [&] {
    Result<std::unique_ptr<SimulatedWindow>> window = make_window(group, endpoint);
    if (!window) return fail(window.error());
    made.push_back(std::move(window.value()));
  };
  make_one();
  collectives_.wait();
  if (failed_) return;
  const Moment first = measure(rank);
  const std::size_t collectives = group.collectives, bytes = group.bytes;
  group.largest = 0;
  group.combine_by_nodes(true);
  for (std::size_t i = 0; i < windows; ++i) make_one();
  collectives_.wait();
  if (failed_) return;
  const Moment all = measure(rank);

  // What the first target of a window takes once is not counted with the others.
  const auto complete = [&] {
    endpoint.complete_all();
    for (const auto& window : made) (void)window->space->flush_all();
    return measure(rank);
  };
  for (const auto& window : made) use(rank, *window, 1);
  const Moment one = complete();
  for (const auto& window : made) use(rank, *window, settings_.touched);
  const Moment outstanding = measure(rank);
  const FabricRoute& route = *made.front()->space->fabric_route();
  const std::size_t visited = route.targets().busy();
  const Moment flushed = complete();
  if (rank == 0) {
    constexpr int kCalls = 1'000'000;
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) (void)made.front()->space->flush_all();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begun;
    figures_.idle_flush_ns = taken.count() / kCalls;
    const auto per_window = static_cast<double>(windows);
    const double users = static_cast<double>(made.size()) * members_;
    const int more = std::max(settings_.touched - 1, 1);
    figures_.window_private = (all.heap - first.heap) / per_window;
    figures_.process_private = figures_.window_private / members_;
    figures_.window_shared = (all.shared.bytes - first.shared.bytes) / per_window;
    figures_.lifetime_private = first.heap - start.heap - figures_.window_private;
    figures_.lifetime_shared = first.shared.bytes - start.shared.bytes - figures_.window_shared;
    figures_.outstanding_private = (outstanding.heap - one.heap) / users / more;
    figures_.first_touched_private = (one.heap - all.heap) / users;
    figures_.touched_private = (flushed.heap - one.heap) / users / more;
    figures_.collectives = static_cast<double>(group.collectives - collectives) / per_window;
    figures_.collective_bytes = static_cast<double>(group.bytes - bytes) / per_window;
    figures_.largest_collective = static_cast<double>(group.largest);
    figures_.mappings = (all.shared.mappings - first.shared.mappings) / per_window / members_;
    figures_.requests_at_first_touch =
        static_cast<double>(endpoint.descriptions) / static_cast<double>(made.size()) / std::max(settings_.touched, 1);
    figures_.shared_counted = all.shared.counted;
    figures_.visited = visited;
    figures_.visited_when_idle = route.targets().busy();
  }
  collectives_.wait();
}

}  // namespace

Result<JobFigures> simulate_job(const JobSettings& settings) { return Job(settings).run(); }

namespace {

std::string bytes(double count) {
  return count < 10'000 ? fmt::format("{:.0f} B", count)
         : count < 1e7  ? fmt::format("{:.1f} KB", count / 1e3)
                        : fmt::format("{:.1f} MB", count / 1e6);
}

}  // namespace

std::string table(const JobSettings& settings, const JobFigures& figures) {
  const double ranks = settings.ranks, processes = std::min(settings.per_node, settings.ranks);
  std::string text =
      fmt::format("{} ranks, {} per node, {} windows, {} targets of other nodes touched per window, {}\n\n",
                  settings.ranks, processes, settings.windows, settings.touched,
                  settings.alike ? "sizes and keys alike" : "sizes and keys that differ");
  const auto row = [&](const char* what, const std::string& value, const std::string& more = "") {
    text += fmt::format("  {:<52} {:>12}  {}\n", what, value, more);
  };
  const auto per_rank = [&](double count) { return fmt::format("{:.2f} B x ranks", count / ranks); };
  const double lifetime = figures.lifetime_shared + figures.lifetime_private;
  const double window = figures.window_shared + figures.window_private;
  row("node, once per group of ranks", bytes(lifetime), per_rank(lifetime));
  row("node, per window", bytes(window), per_rank(window));
  row("  of it shared: control words", bytes(figures.window_shared),
      figures.shared_counted ? "" : "not counted: run it as root");
  row("  of it private, all processes", bytes(figures.window_private));
  row("process, per window", bytes(figures.process_private));
  row("process, per window: the first touched target", bytes(figures.first_touched_private));
  row("process, per window and further touched target", bytes(figures.touched_private));
  row("  while an operation is outstanding", bytes(figures.outstanding_private));
  row("mappings per window and process", fmt::format("{:.1f}", figures.mappings));
  row("collectives per window after the first", fmt::format("{:.1f}", figures.collectives),
      fmt::format("{:.0f} B in all, at most {:.0f} B each", figures.collective_bytes, figures.largest_collective));
  row("messages to get to know a touched target", fmt::format("{:.1f}", figures.requests_at_first_touch));
  row("targets visited by flush_all", fmt::format("{}", figures.visited),
      fmt::format("{} if nothing is outstanding ({:.0f} ns)", figures.visited_when_idle, figures.idle_flush_ns));
  // The sources of the formulas are in tools/docs/commands.md.
  text += "\nother implementations, per node and window, from their sources:\n\n";
  row("osc/ucx (Open MPI): 2 addresses per rank and process", bytes(16 * ranks * processes),
      "16 B x ranks x processes");
  row("osc/rdma (Open MPI): a share of a table of the ranks", bytes(8 * processes),
      "8 B x processes, and what was touched");
  row("ch4/ofi (MPICH): base, key, unit per rank and process", settings.alike ? "0 B" : bytes(24 * ranks * processes),
      settings.alike ? "24 B x ranks x processes if keys or units differ" : "24 B x ranks x processes");
  row("foMPI: a symmetric heap", "O(log ranks)", "per process");
  return text;
}

nlohmann::ordered_json to_json(const JobSettings& settings, const JobFigures& figures) {
  return {{"ranks", settings.ranks},
          {"per_node", settings.per_node},
          {"windows", settings.windows},
          {"touched", settings.touched},
          {"alike", settings.alike},
          {"lifetime_shared_bytes", figures.lifetime_shared},
          {"lifetime_private_bytes", figures.lifetime_private},
          {"window_shared_bytes", figures.window_shared},
          {"window_private_bytes", figures.window_private},
          {"first_touched_bytes", figures.first_touched_private},
          {"touched_bytes", figures.touched_private},
          {"outstanding_bytes", figures.outstanding_private},
          {"mappings", figures.mappings},
          {"collectives", figures.collectives},
          {"collective_bytes", figures.collective_bytes},
          {"requests_at_first_touch", figures.requests_at_first_touch},
          {"visited", figures.visited},
          {"visited_when_idle", figures.visited_when_idle},
          {"idle_flush_ns", figures.idle_flush_ns}};
}

}  // namespace farside::simulate
