// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/creation.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/observe/call_sites.hpp"
#include "pmpi/observe/clocks.hpp"
#include "pmpi/observe/files_on_signal.hpp"
#include "pmpi/observe/statistics_file.hpp"
#include "pmpi/observe/this_job.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/announcement.hpp"
#include "pmpi/window/communicator_group.hpp"
#include "pmpi/window/hints.hpp"
#include "pmpi/window/info_assertions.hpp"
#include "pmpi/window/library_check.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_table.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/device_memory.hpp"
#include "transport/space/make_space.hpp"

namespace farside::pmpi {
namespace {

Outcome check_arguments(const CreationRequest& request) {
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

// What farside does not serve and the runtime may, so that the window is left to it: kNoRoute.
Status check_memory(const CreationRequest& request) {
  if (request.displacement_unit > std::numeric_limits<int>::max()) {
    return Error{ErrorKind::kNoRoute,
                 fmt::format("its displacement unit is more than {} bytes", std::numeric_limits<int>::max())};
  }
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.size > 0 && DeviceMemory::instance().holds(request.base)) {
    return Error{ErrorKind::kNoRoute, "its memory is of a GPU, which farside does not reach"};
  }
  return {};
}

// What a rank says about itself to all (SpaceMaking::flags).
constexpr std::uint64_t kUnknownClock = 1;  // the rank records a trace, and clocks have not been compared yet
constexpr std::uint64_t kNoRecord = 2;      // the rank records no trace
constexpr std::uint64_t kSameSize = 4;      // its info asserts same_size
constexpr std::uint64_t kSameUnit = 8;      // its info asserts same_disp_unit
constexpr std::uint64_t kContiguous = 16;   // its info wants shared memory that is contiguous in rank order

// Like WindowLockTraits::kMostRanks, but for windows that need the fabric.
constexpr int kMostRanksWithoutGlobalLockByFabric = 2;  // lock_all is one remote atomic either way

// The result is the same on all ranks, so no agreement is needed.
Status check_ranks(int ranks) {
  if (epochs::WaiterId::has_room_for(ranks)) return {};
  return Error{ErrorKind::kNoRoute, fmt::format("it has {} ranks, and the control words have room for {}", ranks,
                                                epochs::WaiterId::kMostRanks)};
}

Space::Request space_request(const CreationRequest& request, const Group& group, std::uint64_t id) {
  Space::Request wanted;
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
  wanted.single_elements = asserts_single_elements(request.info);
  wanted.threaded = RuntimeResources::instance().is_threaded();
  return wanted;
}

// Collective. Returns whether the runtime takes the ranks of a communicator for one node.
Result<bool> shares_memory_natively(MPI_Comm communicator, int ranks) {
  MPI_Comm node = MPI_COMM_NULL;
  const int code = runtime().Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  if (Status split = status_of(code, "MPI_Comm_split_type"); !split) return split.error();
  int together = 0;
  Status asked = status_of(runtime().Comm_size(node, &together), "MPI_Comm_size");
  (void)runtime().Comm_free(&node);
  if (!asked) return asked.error();
  return together == ranks;
}

// Collective: sees to it that the ranks of a shared window map each other's memory. Ranks in containers have host names
// of their own, and may share memory all the same: where the runtime takes them for one node, they try.
Status share_memory(MPI_Comm communicator, Group& group, CommunicatorPeers::Place& peers) {
  const auto all_map = [&] { return peers->node().members() == group.ranks(); };  // the same on all ranks
  if (all_map()) return {};
  const Result<bool> shared = shares_memory_natively(communicator, group.ranks());
  if (!shared) return shared.error();
  if (!shared.value()) {
    return Error{ErrorKind::kNotOneNode,
                 "the ranks of the communicator are not all on one node; take one of "
                 "MPI_Comm_split_type with MPI_COMM_TYPE_SHARED"};
  }
  Result<CommunicatorPeers::Place> made = CommunicatorPeers::make(communicator, group, peers->next_id(), true);
  if (!made) return made.error();
  if (made.value()->node().members() == group.ranks()) peers = std::move(made.value());
  if (all_map()) return {};
  return Error{ErrorKind::kNoRoute, "its ranks do not map each other's memory (are they in several containers?)"};
}

// Makes the memory of a window. `own`, `last`: as in SpaceMaking.
Result<MadeSpace> make_memory(const CreationRequest& request, std::uint64_t id, const Status& own, Agreement& agreement,
                              CommunicatorPeers& peers, std::function<Status()> last) {
  const Group& group = agreement.group();
  SpaceMaking making;
  making.request = space_request(request, group, id);
  if (!own) making.own = &own.error();
  const InfoAssertions asserted = info_assertions_in(request.info);
  making.flags = (asserted.same_size ? kSameSize : 0) | (asserted.same_unit ? kSameUnit : 0) |
                 (making.request.contiguous ? kContiguous : 0);
  if (Trace::active() == nullptr) {
    making.flags |= kNoRecord;
  } else if (!clock_is_known()) {
    making.flags |= kUnknownClock;
  }
  making.differ = [&](std::uint64_t flags, bool same_bytes, bool same_units) -> std::optional<Status> {
    const InfoAssertions broken{(flags & kSameSize) != 0 && !same_bytes, (flags & kSameUnit) != 0 && !same_units};
    if (!broken.same_size && !broken.same_unit) return std::nullopt;
    return check_info_assertions(request, broken, agreement.group());
  };
  making.allow_fabric = [&](const std::string& why) -> Status {
    if (!why.empty()) log(LogLevel::kInfo, "{}: the fabric is needed: {}", request.call, why);
    if (Process::instance().settings().value()->fabric) return {};
    return Error{ErrorKind::kNoRoute, fmt::format("FARSIDE_ROUTES does not allow fabric, which is needed for {}",
                                                  why.empty() ? "another rank" : why)};
  };
  making.last = std::move(last);
  Result<MadeSpace> made = make_space(making, agreement, peers);
  if (made && (made.value().flags & (kUnknownClock | kNoRecord)) == kUnknownClock) compare_clocks(request.communicator);
  return made;
}

// The rank that has the global lock of a window. It differs from window to window, because all lock_alls of a window
// access its words. All ranks compute the same one.
int global_lock_home(const MadeSpace& made, std::uint64_t id) {
  const int ranks = made.space->ranks();
  const int most =
      made.needs_fabric ? kMostRanksWithoutGlobalLockByFabric : static_cast<int>(WindowLockTraits::kMostRanks);
  return ranks > most ? static_cast<int>(id % static_cast<std::uint64_t>(ranks)) : WindowLocks::kNoGlobalLock;
}

// MPICH 4.0.2 over UCX 1.13 rounds the base of a window down to a multiple of 16 bytes.
void warn_of_base(const CreationRequest& request) {
  static std::once_flag warned;
  if (is_open_mpi() || request.flavor != MPI_WIN_FLAVOR_CREATE || request.size == 0) return;
  if (reinterpret_cast<std::uintptr_t>(request.base) % 16 == 0) return;
  std::call_once(warned, [&] {
    log(LogLevel::kWarn,
        "{}: the base {} is no multiple of 16 bytes: MPICH 4.0.2 over UCX 1.13 rounds it down in silence, and "
        "operations then reach wrong addresses; align the memory of windows that stay with the runtime",
        request.call, request.base);
  });
}

// The reason of a wait for the other ranks in the call.
class CreationReason final : public LongWait::Reason {
 public:
  CreationReason(const char* call, const Group& group) : call_(call), group_(group) {}
  std::string text(std::chrono::seconds waited) const override {
    return fmt::format(
        "rank {} has waited {} s in {} for other ranks of its communicator, which has {}: all must call it",
        group_.rank(), waited.count(), call_, group_.ranks());
  }

 private:
  const char* call_;
  const Group& group_;
};

}  // namespace

Status make_handle(MPI_Win* handle) {
  const MPI_Comm alone = RuntimeResources::instance().own_communicator();
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

Outcome create_window(const CreationRequest& given, void** base, MPI_Win* win, WindowOwner* owner) {
  CreationRequest request = given;
  *owner = WindowOwner::kFarside;
  if (request.communicator == MPI_COMM_NULL) {
    return Fault{MPI_ERR_COMM, "the communicator is MPI_COMM_NULL; give one (MPI 4.0 section 12.2)"};
  }
  int inter = 0;
  if (runtime().Comm_test_inter(request.communicator, &inter) != MPI_SUCCESS) {
    return Fault{MPI_ERR_COMM,
                 "the communicator is not valid, for instance because it was freed (MPI 4.0 section 12.2)"};
  }
  if (inter != 0) {
    return Fault{MPI_ERR_COMM, "a window needs an intracommunicator; merge this one first (MPI 4.0 section 12.2)"};
  }

  // Without a route the window is the runtime's, as it would be without farside.
  const auto decide = [&](const Error& failed) -> Outcome {
    if (failed.kind != ErrorKind::kNoRoute) return fault_of(failed);
    leave_to_runtime(request.call, failed.text.c_str());
    warn_of_base(request);
    *owner = WindowOwner::kRuntime;
    return {};
  };
  const PatientAllocation others_wait;
  const Result<std::unique_ptr<CommunicatorGroup>> group_of_ranks = CommunicatorGroup::of(request.communicator);
  if (!group_of_ranks) return fault_of(group_of_ranks.error());
  const CreationReason reason(request.call, *group_of_ranks.value());
  Agreement agreement(*group_of_ranks.value());
  Status ready = without_bad_alloc([&] {
    Status started = RuntimeResources::instance().start();
    if (!started) return started;
    prepare_datatypes();
    begin_statistics();
    query_launch();
    begin_files_on_signal();
    CallSites::instance().begin();
    return started;
  });
  // Bad arguments of one rank are an error on all ranks, or the others would wait for this one.
  Outcome arguments = without_bad_alloc([&] { return check_arguments(request); });
  if (Outcome valid = without_bad_alloc([&] { return check_info(request.info); }); !valid) {
    arguments = first_of(std::move(arguments), std::move(valid));
    request.info = MPI_INFO_NULL;
  }
  if (ready && !arguments) ready = Error{ErrorKind::kOther, arguments.fault().text};
  const auto refuse = [&](const Error& failed) { return arguments ? decide(failed) : std::move(arguments); };
  // At the first window of a communicator. Later ones contain this step in the making of their memory.
  const Result<CommunicatorPeers::Place*> place = CommunicatorPeers::find_place(request.communicator);
  if (ready && !place) ready = place.error();
  CommunicatorPeers* peers = place ? place.value()->get() : nullptr;
  if (peers == nullptr) {
    // A setting that cannot be met is an error also where no rank will need the fabric.
    if (ready) ready = without_bad_alloc([] { return Process::instance().find_named_provider(); });
    const LibraryCheck library = check_library_loaded(request.communicator, *group_of_ranks.value(), request.call);
    if (!library.status) return fault_of(library.status.error());
    const Result<std::uint64_t> agreed = agreement.handshake(ready, library.late_warning);
    if (!agreed) return arguments ? fault_of(agreed.error()) : std::move(arguments);
    note_agreement(request.communicator, agreed.value());
    if (Status possible = check_ranks(agreement.ranks()); !possible) return decide(possible.error());
    Result<CommunicatorPeers::Place> made =
        CommunicatorPeers::make(request.communicator, agreement.group(), agreed.value());
    if (!made) return decide(made.error());
    peers = made.value().get();
    *place.value() = std::move(made.value());
  }
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) {
    if (Status shared = share_memory(request.communicator, agreement.group(), *place.value()); !shared)
      return refuse(shared.error());
    peers = place.value()->get();
  }
  const std::uint64_t id = peers->next_id();
  DeviceMemory::instance().look_for_drivers();
  if (ready) ready = check_memory(request);
  if (peers->can_combine()) agreement.combine_by_nodes(*peers);

  // The space for the logs of Strict, of the same size on all ranks.
  std::unique_ptr<Space> logs;
  const Check check = Process::instance().settings().value()->check;
  if (check == Check::kStrict) {
    CreationRequest of_logs = request;
    of_logs.flavor = MPI_WIN_FLAVOR_ALLOCATE;
    of_logs.base = nullptr;
    of_logs.size = static_cast<MPI_Aint>(
        epochs::SharedLog::bytes(agreement.ranks(), epochs::SharedLog::capacity_for(agreement.ranks())));
    of_logs.displacement_unit = 1;
    of_logs.info = MPI_INFO_NULL;
    Result<MadeSpace> made = make_memory(of_logs, ~id, ready, agreement, *peers, {});
    if (!made) return refuse(made.error());
    logs = std::move(made.value().space);
  }

  MPI_Win handle = MPI_WIN_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  Result<MadeSpace> made = make_memory(request, id, ready, agreement, *peers, [&] {
    Status known = status_of(runtime().Comm_group(request.communicator, &group), "MPI_Comm_group");
    return known ? make_handle(&handle) : std::move(known);
  });
  if (!made) {
    // A failure only loses memory.
    if (handle != MPI_WIN_NULL) (void)runtime().Win_free(&handle);
    if (group != MPI_GROUP_NULL) (void)runtime().Group_free(&group);
    return refuse(made.error());
  }
  Window::Attributes attributes;
  // The base of a dynamic window is MPI_BOTTOM (MPI 4.0 section 12.2.6), which its request contains.
  attributes.base = allocates_memory(request.flavor) ? made.value().space->data() : request.base;
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) attributes.base = made.value().space->mapped_data(agreement.rank()).base;
  attributes.size = request.size;
  attributes.displacement_unit = static_cast<int>(request.displacement_unit);
  attributes.flavor = request.flavor;
  *base = attributes.base;
  *win = handle;
  const int home = global_lock_home(made.value(), id);
  auto barriers = peers->barrier_schedule(made.value().space->words_mapped_in_nodes());
  auto window =
      std::make_unique<Window>(handle, group, attributes, std::move(made.value().space), std::move(barriers), home,
                               Hints(request.flavor, request.info, (made.value().flags & kContiguous) != 0),
                               RuntimeResources::instance().is_threaded(), check, std::move(logs), id);
  Window& made_window = *window;
  made_window.allow_near_hand_offs(near_hand_offs(request.info));
  WindowTable::instance().insert(handle, std::move(window));
  // A session that has begun meanwhile may have raised the thread level before this window was in the table.
  if (RuntimeResources::instance().is_threaded()) made_window.expect_threads();
  count_farside_window();
  announce_first_window(made_window, peers->node_count(), check);
  return {};
}

void leave_to_runtime(const char* call, const char* reason) {
  static std::mutex mutex;
  static auto* const logged = new std::set<std::string>();
  count_runtime_window();
  const std::scoped_lock held(mutex);
  if (logged->insert(fmt::format("{}: {}", call, reason)).second) {
    log(LogLevel::kWarn, "{}: this window stays with the MPI runtime: {}", call, reason);
  }
}

}  // namespace farside::pmpi
