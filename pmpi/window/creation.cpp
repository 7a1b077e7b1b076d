// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "epochs/protocols/control_block.hpp"
#include "epochs/races/shared_log.hpp"
#include "pmpi/call_sites.hpp"
#include "pmpi/check/strict.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/observe/observation.hpp"
#include "pmpi/observe/window_statistics.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/communicator_group.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/node/device_memory.hpp"
#include "transport/process.hpp"
#include "transport/space/make_space.hpp"

namespace farside::pmpi {
namespace {

// The errors after which there are no ranks to agree with.
Status check_communicator(MPI_Comm communicator) {
  if (communicator == MPI_COMM_NULL)
    return Fault{MPI_ERR_COMM, "the communicator is MPI_COMM_NULL; give one (MPI 4.0 section 12.2)"};
  int inter = 0;
  if (runtime().Comm_test_inter(communicator, &inter) != MPI_SUCCESS) {
    return Fault{MPI_ERR_COMM,
                 "the communicator is not valid, for instance because it was freed (MPI 4.0 section 12.2)"};
  }
  if (inter == 0) return {};
  return Fault{MPI_ERR_COMM, "a window needs an intracommunicator; merge this one first (MPI 4.0 section 12.2)"};
}

Status check_arguments(const CreationRequest& request) {
  if (request.size < 0) {
    return Fault{MPI_ERR_SIZE, fmt::format("size is {}; it may not be negative (MPI 4.0 section 12.2)", request.size)};
  }
  if (request.displacement_unit <= 0) {
    return Fault{MPI_ERR_DISP, fmt::format("displacement unit is {}; it must be positive (MPI 4.0 section 12.2)",
                                           request.displacement_unit)};
  }
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.base == nullptr && request.size > 0) {
    return Fault{MPI_ERR_BASE, fmt::format("the base address is null, and the size {} bytes; give it memory "
                                           "(MPI 4.0 section 12.2.1)",
                                           request.size)};
  }
  return {};
}

// kNoRoute for memory that only the runtime may support: the window is left to it.
Status check_memory(const CreationRequest& request) {
  if (request.displacement_unit > std::numeric_limits<int>::max()) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("its displacement unit is more than {} bytes", std::numeric_limits<int>::max())};
  }
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.size > 0 &&
      Process::instance().device_memory().holds(request.base)) {
    return Error{ErrorKind::kNoRoute, "its memory is GPU memory, which farside cannot access"};
  }
  return {};
}

// Facts that each rank tells all others (SpaceMaking::flags).
constexpr std::uint64_t kUnknownClock = 1;  // the rank records a trace, and clocks have not been compared yet
constexpr std::uint64_t kNoRecord = 2;      // the rank records no trace
constexpr std::uint64_t kContiguous = 4;    // its info wants shared memory that is contiguous in rank order

// Like WindowLockTraits::kMostRanks, but for windows that need the fabric.
constexpr int kMostRanksWithoutGlobalLockByFabric = 2;  // lock_all is one remote atomic either way

// `ready`, `besides`: SpaceMaking::own and the like.
SpaceMaking making_of(const CreationRequest& request, const Group& group, std::uint64_t id, const Status& ready,
                      const Status& besides) {
  SpaceMaking making;
  Space::Request& wanted = making.request;
  wanted.rank = group.rank();
  wanted.ranks = group.ranks();
  wanted.id = id;
  static_assert(epochs::ControlBlock::kLock >= Space::kHeaderBytes);
  wanted.control_bytes = epochs::ControlBlock::bytes(group.ranks());
  wanted.data_bytes = static_cast<std::uint64_t>(request.size);
  // An empty window on private memory is like an empty allocated one: it has no data to reach.
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.size > 0) wanted.private_data = request.base;
  wanted.unit = static_cast<std::uint32_t>(request.displacement_unit);
  wanted.dynamic = request.flavor == MPI_WIN_FLAVOR_DYNAMIC;
  wanted.shared = request.flavor == MPI_WIN_FLAVOR_SHARED;
  // The memory is contiguous unless all ranks allow otherwise (MPI 4.0 section 12.2.3).
  wanted.contiguous = wanted.shared && !is_true(request.info, "alloc_shared_noncontig");
  if (allocates_memory(request.flavor)) wanted.alignment = minimum_alignment(request.info);
  wanted.overcommit = allows_overcommit(request.info);
  wanted.numa = numa_of(request.info);
  wanted.single_elements = asserts_single_elements(request.info);
  wanted.threaded = library().resources->is_threaded();
  making.call = request.call;
  making.own = ready ? nullptr : &ready.error();
  making.besides = besides ? nullptr : &besides.error();
  making.same_bytes = is_true(request.info, "same_size");
  making.same_units = is_true(request.info, "same_disp_unit");
  const std::uint64_t no_clock = library().observed->clocks_compared ? 0 : kUnknownClock;
  making.flags = (wanted.contiguous ? kContiguous : 0) | (Trace::active() != nullptr ? no_clock : kNoRecord);
  return making;
}

// This rank's share of a new window: its request, its resources, and its error if it cannot take part.
struct Contribution {
  Contribution(const CreationRequest& request, std::unique_ptr<CommunicatorGroup> fresh);
  ~Contribution() {
    if (handle != MPI_WIN_NULL) (void)runtime().Win_free(&handle);  // a failure only loses memory
  }

  CreationRequest request;
  Status arguments;  // a mistake in them, which this rank reports as its own
  Status ready;      // any reason why this rank makes no window, that mistake too
  Status carried;    // kNoRoute: the window is one for the runtime
  Status has_handle;
  std::unique_ptr<CommunicatorGroup> unkept;  // `group`, if there can be no attribute of the communicator
  CommunicatorGroup* group;
  MPI_Win handle = MPI_WIN_NULL;
  TemporaryGroup members;
};

// The agreement of the ranks, with this rank's memory.
struct Agreed {
  std::uint64_t id = 0;
  MadeSpace memory;
  std::unique_ptr<Space> logs;  // of FARSIDE_CHECK=strict
};

Contribution::Contribution(const CreationRequest& given, std::unique_ptr<CommunicatorGroup> fresh)
    : request(given), unkept(std::move(fresh)), group(unkept.get()) {
  ready = without_bad_alloc([&] {
    Status started = library().resources->start();
    if (!started) return started;
    prepare_datatypes();
    begin_observation();
    return started;
  });
  // Bad arguments of one rank are an error on all ranks, or the others would wait for this one.
  arguments = without_bad_alloc([&] { return check_arguments(request); });
  if (Status valid = without_bad_alloc([&] { return check_info(request.info); }); !valid) {
    arguments.keep(std::move(valid));
    request.info = MPI_INFO_NULL;
  }
  if (ready && !arguments) ready = Error{ErrorKind::kOther, arguments.error().text};
  const Result<CommunicatorGroup*> kept = CommunicatorGroup::find_kept(unkept);
  if (kept) group = kept.value();
  if (ready) ready = kept.status();
  // A setting that cannot be met is an error also where no rank will need the fabric.
  if (ready && !group->joined()) ready = without_bad_alloc([] { return Process::instance().find_named_provider(); });
  if (!ready) return;
  Process::instance().device_memory().look_for_drivers();
  carried = check_memory(request);
  has_handle = status_of(runtime().Comm_group(request.communicator, &members.handle), "MPI_Comm_group");
  if (has_handle) has_handle = make_handle(&handle);
}

// Collective: sees to it that the ranks of a shared window map each other's memory. Ranks in containers have host names
// of their own, and may share memory all the same: where the runtime takes them for one node, they try.
Status share_memory(MPI_Comm communicator, CommunicatorGroup& group) {
  const auto all_map = [&] { return group.node().members() == group.ranks(); };  // the same on all ranks
  if (all_map()) return {};
  MPI_Comm node = MPI_COMM_NULL;
  const int code = runtime().Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  if (Status split = status_of(code, "MPI_Comm_split_type"); !split) return split;
  int together = 0;
  Status asked = status_of(runtime().Comm_size(node, &together), "MPI_Comm_size");
  (void)runtime().Comm_free(&node);
  if (!asked) return asked;
  if (together != group.ranks()) {
    return Error{ErrorKind::kNotOneNode,
                 "the ranks of the communicator are not all on one node; take one of "
                 "MPI_Comm_split_type with MPI_COMM_TYPE_SHARED"};
  }
  if (Status met = group.meet(group.next_id(), true); !met) return met;
  if (all_map()) return {};
  return Error{ErrorKind::kNoRoute, "its ranks do not map each other's memory (are they in several containers?)"};
}

// Whether farside is loaded on all ranks of a communicator, before its first window (pmpi/windows.md). A rank without
// it joins no collective of farside: the two would wait for each other, or take each other's messages.
//   1. On the node, runtime/program_runtime.hpp finds such ranks for certain, without communication.
//   2. With Open MPI, farside makes a reduction of one int that is also the first step of Open MPI's own functions for
//      windows. These duplicate the communicator, and the id of the duplicate is the maximum of ids above 0. A rank
//      with farside contributes 0, so the result is 0 only if all ranks have farside
//      (CommunicatorGroup::take_highest()). MPICH cannot be checked in this way, because its first step is a blocking
//      reduction whose size depends on its build.
//   3. In all other cases farside relies on time: the reports of FARSIDE_HANG name the ranks of which farside knows
//      nothing.
// Steps 1 and 2 and the handshake (transport/space/group.hpp) come first in every version of farside, so that
// ranks with different versions can say so. Cost: one reduction of 4 bytes (Open MPI); step 1, and not again unless
// a rank of the node lacks farside.

constexpr const char* kRemedy = "load it on every rank (farside run; mpirun -x LD_PRELOAD)";

std::string named(std::span<const int> ranks) { return names(ranks) + " of MPI_COMM_WORLD"; }

Error is_not_loaded_on(const std::string& ranks) {
  return {ErrorKind::kPeer, fmt::format("farside is not loaded on {}; {}", ranks, kRemedy)};
}

// The ranks of the node do not lose the library. Per thread, so that no mutex is needed.
const NodeRanks& node_ranks(int rank) {
  std::optional<NodeRanks>& known = PerThread<std::optional<NodeRanks>>::here();
  if (!known || !known->without.empty()) known = find_node_ranks(NodeView::of_this_process(), rank);
  return *known;
}

// Collective, but for ranks that find an error on their own node: it names the ranks without farside. `doubt`: what is
// said of ranks that do not arrive.
Status check_library_loaded(MPI_Comm communicator, CommunicatorGroup& group, std::string& doubt) {
  if (group.ranks() == 1) return {};
  std::vector<int> members, without, unknown;  // ranks in MPI_COMM_WORLD; none if there are other processes
  if (library().resources->in_world()) {
    const int rank = library().resources->process_rank();
    if (rank < 0) return Error{ErrorKind::kPeer, "the runtime's MPI_Comm_rank failed"};
    const TemporaryGroup own(communicator);
    if (own) members = library().resources->process_ranks_of(own.handle, group.ranks());
    std::ranges::sort(members);
    if (!members.empty() && members.front() < 0) members.clear();
    const NodeRanks& known = node_ranks(rank);
    std::ranges::set_intersection(members, known.without, std::back_inserter(without));
    if (!without.empty()) return is_not_loaded_on(named(without));
    std::ranges::set_difference(members, known.with, std::back_inserter(unknown));
  }
  if (members.empty() || !unknown.empty()) {
    doubt =
        fmt::format("; is farside loaded {}? If not, {}", unknown.empty() ? "there" : "on " + named(unknown), kRemedy);
  }
  int highest = 0;
  Status carried = is_open_mpi() ? group.take_highest(highest) : Status();
  if (!carried || highest == 0) return carried;
  return is_not_loaded_on(unknown.empty()       ? std::string("some rank")
                          : unknown.size() == 1 ? named(unknown)
                                                : fmt::format("one or more of {}", named(unknown)));
}

// At the first window of a communicator. Later ones contain this step in the agreement on the memory.
Status meet(Contribution& own, std::string& doubt) {
  const MPI_Comm communicator = own.request.communicator;
  if (Status loaded = check_library_loaded(communicator, *own.group, doubt); !loaded) {
    own.arguments = {};  // the other ranks do not hear of them
    return loaded;
  }
  const Result<std::uint64_t> agreed = own.group->handshake(own.ready);
  if (!agreed) return agreed.error();
  doubt.clear();
  note_agreement(communicator, agreed.value());
  return own.group->meet(agreed.value());
}

// Collective: all ranks have the memory of the window afterwards, or all have an error of the same kind.
Result<Agreed> agree(Contribution& own) {
  CommunicatorGroup& group = *own.group;
  std::string doubt;  // ends the sentence
  const ReasonOf reason([&](std::chrono::seconds waited) {
    return fmt::format(
        "rank {} has waited {} s in {} for other ranks of its communicator, which has {}: all must call it{}{}",
        group.rank(), waited.count(), own.request.call, group.ranks(), doubt, library().sites->called_from());
  });
  Status met = group.joined() ? Status() : meet(own, doubt);
  if (met && own.request.flavor == MPI_WIN_FLAVOR_SHARED) met = share_memory(own.request.communicator, group);
  if (!met) return met.error();
  Agreed agreed{.id = group.next_id(), .memory = {}, .logs = nullptr};
  group.combine_by_nodes(group.can_combine());
  if (own.ready) own.ready = std::move(own.carried);
  if (Process::instance().settings().value()->check == Check::kStrict) {
    CreationRequest of_logs{own.request.call, MPI_WIN_FLAVOR_ALLOCATE, nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_NULL};
    of_logs.size = static_cast<MPI_Aint>(  // the same on all ranks
        epochs::SharedLog::bytes(group.ranks(), epochs::SharedLog::capacity_for(group.ranks())));
    Result<MadeSpace> logs = make_space(making_of(of_logs, group, ~agreed.id, own.ready, {}), group);
    if (!logs) return logs.error();
    agreed.logs = std::move(logs.value().space);
  }
  Result<MadeSpace> memory = make_space(making_of(own.request, group, agreed.id, own.ready, own.has_handle), group);
  if (!memory) return memory.error();
  agreed.memory = std::move(memory.value());
  if (agreed.logs != nullptr) {
    Strict::describe(*agreed.memory.space, *agreed.logs);
    if (Result<Group::Combined> told = group.agree({}); !told) return told.error();
  }
  if ((agreed.memory.flags & (kUnknownClock | kNoRecord)) == kUnknownClock) compare_clocks(own.request.communicator);
  return agreed;
}

// Warns, once, of a memory error of native windows, in which operations then corrupt other memory.
void warn_of_base(const CreationRequest& request) {
  if (is_open_mpi() || request.flavor != MPI_WIN_FLAVOR_CREATE || request.size == 0) return;
  if (reinterpret_cast<std::uintptr_t>(request.base) % 16 == 0) return;
  if (!Log::is_new("base of a window")) return;
  log(LogLevel::kWarn,
      "{}: the base {} is no multiple of 16 bytes: MPICH 4.0.2 over UCX 1.13 rounds it down in silence, and "
      "operations then reach wrong addresses; align the memory of windows that stay with the runtime",
      request.call, request.base);
}

// A mistake of this rank is its own error. Without a route the window is the runtime's, as it would be without farside.
Status refuse(Contribution& own, const Error& why) {
  if (!own.arguments) return std::move(own.arguments);
  if (why.kind != ErrorKind::kNoRoute) return why;
  library().observed->runtime_windows.fetch_add(1, std::memory_order_relaxed);
  const char* const call = own.request.call;
  if (Log::is_new(fmt::format("{}: {}", call, why.text)))
    log(LogLevel::kWarn, "{}: this window stays with the MPI runtime: {}", call, why.text);
  warn_of_base(own.request);
  return {};
}

// The rank that has the global lock of a window. It differs from window to window, because all lock_alls of a window
// access its words. All ranks compute the same one.
int global_lock_home(const MadeSpace& made, std::uint64_t id) {
  const int ranks = made.space->ranks();
  const int most = made.space->fabric_route() != nullptr ? kMostRanksWithoutGlobalLockByFabric
                                                         : static_cast<int>(WindowLockTraits::kMostRanks);
  return ranks > most ? static_cast<int>(id % static_cast<std::uint64_t>(ranks)) : WindowLocks::kNoGlobalLock;
}

std::unique_ptr<Window> build(Contribution& own, Agreed agreed) {
  const CreationRequest& request = own.request;
  Space& space = *agreed.memory.space;
  Window::Attributes attributes;
  // The base of a dynamic window is MPI_BOTTOM (MPI 4.0 section 12.2.6), which its request contains.
  attributes.base = allocates_memory(request.flavor) ? space.data() : request.base;
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) attributes.base = space.mapped_data(space.rank()).base;
  attributes.size = request.size;
  attributes.displacement_unit = static_cast<int>(request.displacement_unit);
  attributes.flavor = request.flavor;
  const int home = global_lock_home(agreed.memory, agreed.id);
  auto barriers = own.group->barrier_schedule(space.words().mapped_in_nodes());
  auto window = std::make_unique<Window>(
      own.handle, own.members.handle, attributes, std::move(agreed.memory.space), std::move(barriers), home,
      Hints(request.flavor, request.info, (agreed.memory.flags & kContiguous) != 0, agreed.memory.same_bytes,
            agreed.memory.same_units),
      library().resources->is_threaded(), Process::instance().settings().value()->check, std::move(agreed.logs),
      agreed.id);
  own.handle = MPI_WIN_NULL;
  own.members.handle = MPI_GROUP_NULL;
  window->state().near_hand_offs = near_hand_offs(request.info);
  return window;
}

// The line that answers "is farside active?" (README.md has one): with FARSIDE_LOG=info, rank 0 of MPI_COMM_WORLD (in a
// program with sessions only: of mpi://WORLD) prints it when it has made its first window. Ranks, nodes and routes are
// those of this window, as rank 0 reaches the others.
void announce_first_window(Window& window, std::size_t nodes, Check check) {
  static constexpr std::array<const char*, 4> kChecks = {"off", "warn", "on", "strict"};
  if (!Log::enabled(LogLevel::kInfo) || !Log::is_new("first window")) return;
  if (library().resources->process_rank() != 0) return;
  const OpenEndpoint* const fabric = window.fabric();
  log(LogLevel::kInfo,
      "farside {} is active on {}; ranks: {}, nodes: {}, routes: {}, provider: {}, device: {}, checks: {}",
      FARSIDE_VERSION, runtime_name(), window.ranks(), nodes, names_of_routes(*window.state().space, ","),
      fabric != nullptr ? fabric->provider() : "none", fabric != nullptr ? fabric->device() : "none",
      kChecks[static_cast<std::size_t>(check)]);
}

void commit(std::unique_ptr<Window> window, std::size_t nodes) {
  Window& made = *window;
  library().windows.insert(made.handle(), std::move(window));
  // A session that has begun meanwhile may have raised the thread level before this window was in the table.
  if (library().resources->is_threaded()) made.expect_threads();
  library().observed->farside_windows.fetch_add(1, std::memory_order_relaxed);
  announce_first_window(made, nodes, Process::instance().settings().value()->check);
}

}  // namespace

Status create_window(const CreationRequest& request, void** base, MPI_Win* win) {
  if (Status possible = check_communicator(request.communicator); !possible) return possible;
  const PatientAllocation others_wait;
  Result<std::unique_ptr<CommunicatorGroup>> group = CommunicatorGroup::of(request.communicator);
  if (!group) return group.error();

  Contribution own(request, std::move(group.value()));  // gathers it
  Result<Agreed> agreed = agree(own);
  if (!agreed) return refuse(own, agreed.error());
  std::unique_ptr<Window> window = build(own, std::move(agreed.value()));
  *base = *window->predefined_attribute(MPI_WIN_BASE);
  *win = window->handle();
  commit(std::move(window), own.group->node_count());
  return {};
}

Status make_handle(MPI_Win* handle) {
  const MPI_Comm alone = library().resources->own_communicator();
  if (!is_open_mpi()) {
    // Without a context id MPICH aborts in the creation of a window, where that of a communicator returns an error.
    MPI_Comm probe = MPI_COMM_NULL;
    if (runtime().Comm_dup(alone, &probe) != MPI_SUCCESS) {
      return Error{
          ErrorKind::kNoMemory,
          "the runtime has no context id left, of which each communicator and each window needs one; free some"};
    }
    (void)runtime().Comm_free(&probe);
  }
  void* nothing = nullptr;
  if (runtime().Win_allocate_shared(0, 1, MPI_INFO_NULL, alone, static_cast<void*>(&nothing), handle) == MPI_SUCCESS ||
      runtime().Win_allocate(0, 1, MPI_INFO_NULL, alone, static_cast<void*>(&nothing), handle) == MPI_SUCCESS ||
      runtime().Win_create_dynamic(MPI_INFO_NULL, alone, handle) == MPI_SUCCESS) {
    return {};
  }
  *handle = MPI_WIN_NULL;
  return Error{ErrorKind::kNoRoute, "the runtime makes no handle for it (Open MPI: is osc/sm excluded?)"};
}

}  // namespace farside::pmpi
