// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/creation.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "epochs/protocols/control_block.hpp"
#include "epochs/protocols/lock_words.hpp"
#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/observe/clocks.hpp"
#include "pmpi/observe/statistics_file.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "pmpi/window/agreement.hpp"
#include "pmpi/window/hints.hpp"
#include "pmpi/window/info_assertions.hpp"
#include "pmpi/window/window.hpp"
#include "pmpi/window/window_table.hpp"
#include "transport/base/checked.hpp"
#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"

namespace farside::pmpi {
namespace {

// MPICH 4.0 aborts when its context ids are exhausted, at some 2,000 live windows.
constexpr std::size_t kMostWindows = 1900;

Outcome check_arguments(const CreationRequest& request) {
  if (request.size < 0) {
    return Fault{MPI_ERR_SIZE, fmt::format("size is {}; it may not be negative (MPI 4.0 section 12.2)", request.size)};
  }
  if (request.displacement_unit <= 0 || request.displacement_unit > std::numeric_limits<int>::max()) {
    return Fault{MPI_ERR_DISP, fmt::format("displacement unit is {}; it must be positive (MPI 4.0 section 12.2)",
                                           request.displacement_unit)};
  }
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.base == nullptr && request.size > 0) {
    return Fault{MPI_ERR_BASE, fmt::format("the base address is null, and the size {} bytes; give it memory "
                                           "(MPI 4.0 section 12.2.1)", request.size)};
  }
  return {};
}

// The contribution of each rank when its memory is made.
struct Contribution {
  SpaceDescriptor space;
  RankArguments given;
};

constexpr unsigned kNeedsFabric = 1;
constexpr unsigned kUsesCma = 2;
constexpr unsigned kUnknownClock = 4;  // the rank records a trace, and clocks have not been compared yet
constexpr unsigned kNoRecord = 8;      // the rank records no trace
constexpr unsigned kNoEndpoint = 16;   // the rank has no endpoint yet
constexpr unsigned kFirstProvider = 32;

// Like WindowLockTraits::kMostRanks, but for windows that need the fabric.
constexpr std::size_t kMostRanksWithoutGlobalLockByFabric = 2;  // lock_all is one remote atomic either way

struct Agreed {
  std::unique_ptr<Space> space;
  std::vector<int> displacement_units;
  int global_lock_home = WindowLocks::kNoGlobalLock;
  std::uint64_t id = 0;          // identifies the space, the same on all ranks
};

Error in_words(const char* what, const Error& error) { return {error.kind, fmt::format("{}: {}", what, error.text)}; }

// The contribution of each rank before shared memory is made, because rank 0 makes the parts of all ranks.
struct Share {
  std::uint64_t bytes;
  bool contiguous;
};

// The result is the same on all ranks, so no agreement is needed.
Status check_ranks(int ranks) {
  if (epochs::WaiterId::has_room_for(ranks)) return {};
  return Error{ErrorKind::kNoRoute, fmt::format("it has {} ranks, and the control words have room for {}", ranks,
                                                epochs::WaiterId::kMostRanks)};
}

// Plans a shared window. All ranks must be on one node. The memory is contiguous unless all ranks allow otherwise
// (MPI 4.0 section 12.2.3).
Status plan_sharing(const CreationRequest& request, const std::vector<char>& near, Agreement& agreement,
                    Space::Request& wanted) {
  // The result is the same on all ranks: if one rank has all others on its node, each of them has, too.
  if (!std::ranges::all_of(near, [](char here) { return here != 0; })) {
    return Error{ErrorKind::kNotOneNode, "the ranks of the communicator are not all on one node; take one of "
                                         "MPI_Comm_split_type with MPI_COMM_TYPE_SHARED"};
  }
  std::vector<Share> all;
  const Share own{wanted.data_bytes, !is_true(request.info, "alloc_shared_noncontig")};
  if (auto failed = agreement.exchange(own, Status(), all)) return *failed;
  wanted.shared = true;
  if (!std::ranges::any_of(all, &Share::contiguous)) return {};
  for (const Share& share : all) {
    if (share.bytes > kMostBytes - wanted.contiguous_bytes) {
      return Error{ErrorKind::kNoMemory, "the sizes of all ranks are together more than an address space"};
    }
    wanted.contiguous_bytes += share.bytes;
  }
  return {};
}

// Returns the providers that every rank can use. `said`: the bits of all ranks (kNoEndpoint and so on). A rank that can
// use no provider reports that when it opens its endpoint.
Result<Providers> agree_on_providers(unsigned said, Agreement& agreement) {
  const Providers in_use = said / kFirstProvider;
  if ((said & kNoEndpoint) == 0 && std::has_single_bit(in_use)) return in_use;
  const Providers own = Process::instance().usable_providers();
  return agreement.all(own == 0 ? kAnyProvider : own);
}

// Carries out the steps of transport/space/space.hpp, with an agreement after each.
Result<Agreed> make_space(const CreationRequest& request, Agreement& agreement) {
  Space::Request wanted;
  wanted.rank = agreement.rank();
  wanted.ranks = agreement.ranks();
  wanted.control_bytes = epochs::ControlBlock::bytes(agreement.ranks());
  wanted.data_bytes = static_cast<std::uint64_t>(request.size);
  // An empty window on private memory is like an empty allocated one: it has no data to reach.
  if (request.flavor == MPI_WIN_FLAVOR_CREATE && request.size > 0) wanted.private_data = request.base;
  wanted.dynamic = request.flavor == MPI_WIN_FLAVOR_DYNAMIC;
  wanted.threaded = RuntimeResources::instance().is_threaded();
  const Result<const std::vector<char>*> known = same_node(request.communicator);
  if (!known) return known.error();
  const std::vector<char>& near = *known.value();
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) {
    if (Status planned = plan_sharing(request, near, agreement, wanted); !planned) return planned.error();
  }
  Result<std::unique_ptr<Space>> made = Space::make(wanted);

  Contribution own{};
  own.given = {info_assertions_in(request.info), static_cast<std::int32_t>(request.displacement_unit),
               wanted.data_bytes};
  if (made) own.space = made.value()->describe(std::ranges::count(near, char{0}) + 1 < std::ssize(near));
  std::vector<Contribution> all;
  if (auto failed = agreement.exchange(own, made.status(), all)) return in_words("memory of the window", *failed);
  Agreed agreed;
  agreed.space = std::move(made.value());
  std::vector<SpaceDescriptor> descriptors;
  std::vector<RankArguments> given;
  std::vector<MemoryNeed> needs;
  for (const Contribution& c : all) {
    descriptors.push_back(c.space);
    needs.push_back(c.space.memory);
    agreed.displacement_units.push_back(c.given.displacement_unit);
    given.push_back(c.given);
  }
  // All ranks have the same numbers, so they get the same result.
  if (Status enough = check_memory_needs(needs); !enough) return in_words("memory of the window", enough.error());
  if (Status kept = check_info_assertions(given); !kept) return kept.error();
  if (std::ranges::all_of(agreed.displacement_units, [&](int unit) { return unit == agreed.displacement_units[0]; })) {
    agreed.displacement_units.resize(1);
  }

  const Space::Reach reach = agreed.space->map_peers(descriptors, near);
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) {
    // kNoRoute leaves the window to the runtime, which may have other means to share memory.
    const Status shared = reach.unshared ? Status(Error{ErrorKind::kNoRoute, reach.why}) : Status();
    if (auto failed = agreement.confirm(shared)) return *failed;
  }
  agreed.id = descriptors[0].nonce;
  const unsigned clocks = Trace::active() == nullptr ? kNoRecord : clock_is_known() ? 0 : kUnknownClock;
  const Providers in_use = Process::instance().provider_in_use();
  const Result<unsigned> said =
      agreement.any((reach.needs_fabric ? kNeedsFabric : 0) | (reach.uses_cma ? kUsesCma : 0) | clocks |
                    (in_use == 0 ? kNoEndpoint : in_use * kFirstProvider));
  if (!said) return said.error();
  const unsigned needed = said.value();
  const bool some_cma = (needed & kUsesCma) != 0;
  // The home of the global lock differs from window to window, because all lock_alls of a window access its words. All
  // ranks compute the same one.
  const std::size_t most =
      (needed & kNeedsFabric) != 0 ? kMostRanksWithoutGlobalLockByFabric : WindowLockTraits::kMostRanks;
  if (static_cast<std::size_t>(agreement.ranks()) > most) {
    agreed.global_lock_home = static_cast<int>(descriptors[0].nonce % static_cast<std::uint64_t>(agreement.ranks()));
  }
  if ((needed & kNeedsFabric) != 0) {
    if (reach.needs_fabric) log(LogLevel::kInfo, "{}: the fabric is needed: {}", request.call, reach.why);
    FabricDescriptor descriptor;
    Status opened;
    if (!Process::instance().settings().value()->fabric) {
      opened = Error{ErrorKind::kNoRoute, fmt::format("FARSIDE_ROUTES does not allow fabric, which is needed for {}",
                                                      reach.needs_fabric ? reach.why : "another rank")};
    } else {
      const Result<Providers> among = agree_on_providers(needed, agreement);
      if (!among) return among.error();
      Result<FabricDescriptor> result = agreed.space->open_fabric(among.value());
      opened = result.status();
      if (result) descriptor = result.value();
    }
    std::vector<FabricDescriptor> peers;
    if (auto failed = agreement.exchange(descriptor, opened, peers)) return *failed;
    if (auto failed = agreement.confirm(agreed.space->connect(peers, some_cma))) return *failed;
  }
  agreed.space->finish(some_cma);
  if ((needed & (kUnknownClock | kNoRecord)) == kUnknownClock) compare_clocks(request.communicator);
  return agreed;
}

// Makes a handle of the runtime, which then keeps name, attributes and error handler. The call is local: the
// communicator has one rank. Which kinds of window Open MPI can make depends on the selected components.
Status make_handle(MPI_Info info, MPI_Win* handle) {
  if (WindowTable::instance().size() >= kMostWindows) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("{} windows are in use, more than the runtime has handles for", kMostWindows)};
  }
  const MPI_Comm alone = RuntimeResources::instance().own_communicator();
  void* nothing = nullptr;
  if (runtime().Win_allocate_shared(0, 1, info, alone, static_cast<void*>(&nothing), handle) == MPI_SUCCESS ||
      runtime().Win_allocate(0, 1, info, alone, static_cast<void*>(&nothing), handle) == MPI_SUCCESS ||
      runtime().Win_create_dynamic(info, alone, handle) == MPI_SUCCESS) {
    return {};
  }
  *handle = MPI_WIN_NULL;
  return Error{ErrorKind::kNoRoute, "the runtime makes no handle for it (Open MPI: is osc/sm excluded?)"};
}

}  // namespace

Outcome create_window(const CreationRequest& request, void** base, MPI_Win* win, Carrier* carrier) {
  *carrier = Carrier::kFarside;
  if (request.communicator == MPI_COMM_NULL) {
    return Fault{MPI_ERR_COMM, "the communicator is MPI_COMM_NULL; give one (MPI 4.0 section 12.2)"};
  }
  int inter = 0;
  if (Status asked = status_of(PMPI_Comm_test_inter(request.communicator, &inter), "MPI_Comm_test_inter"); !asked) {
    return Fault{MPI_ERR_COMM, asked.error().text};
  }
  if (inter != 0) {
    return Fault{MPI_ERR_COMM, "a window needs an intracommunicator; merge this one first (MPI 4.0 section 12.2)"};
  }

  // Without a route the window is the runtime's, as it would be without farside.
  const auto decide = [&](const Error& failed) -> Outcome {
    if (failed.kind != ErrorKind::kNoRoute) return fault_of(failed);
    leave_to_runtime(request.call, failed.text.c_str());
    *carrier = Carrier::kRuntime;
    return {};
  };
  Agreement agreement(request.communicator);
  Status ready = RuntimeResources::instance().start();
  if (ready) {
    prepare_datatypes();
    begin_statistics();
  }
  // Bad arguments of one rank are an error on all ranks, or the others would wait for this one.
  Outcome arguments = check_arguments(request);
  if (ready && !arguments) ready = Error{ErrorKind::kOther, arguments.fault().text};
  if (auto failed = agreement.handshake(ready, request.call))
    return arguments ? fault_of(*failed) : std::move(arguments);
  if (Status possible = check_ranks(agreement.ranks()); !possible) return decide(possible.error());
  Result<Agreed> agreed = make_space(request, agreement);
  if (!agreed) return decide(agreed.error());

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
    Result<Agreed> made = make_space(of_logs, agreement);
    if (!made) return decide(made.error());
    logs = std::move(made.value().space);
  }

  MPI_Win handle = MPI_WIN_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  Status made = status_of(PMPI_Comm_group(request.communicator, &group), "MPI_Comm_group");
  if (made) made = make_handle(request.info, &handle);
  if (auto failed = agreement.confirm(made)) {
    // A failure only loses memory.
    if (handle != MPI_WIN_NULL) (void)runtime().Win_free(&handle);
    if (group != MPI_GROUP_NULL) (void)PMPI_Group_free(&group);
    return decide(*failed);
  }
  Window::Attributes attributes;
  // The base of a dynamic window is MPI_BOTTOM (MPI 4.0 section 12.2.6), which its request contains.
  const bool made_here = request.flavor == MPI_WIN_FLAVOR_ALLOCATE || request.flavor == MPI_WIN_FLAVOR_SHARED;
  attributes.base = made_here ? agreed.value().space->data() : request.base;
  if (request.flavor == MPI_WIN_FLAVOR_SHARED) attributes.base = agreed.value().space->address(agreement.rank());
  attributes.size = request.size;
  attributes.displacement_unit = static_cast<int>(request.displacement_unit);
  attributes.flavor = request.flavor;
  *base = attributes.base;
  *win = handle;
  auto window = std::make_unique<Window>(
      handle, group, attributes, std::move(agreed.value().displacement_units), std::move(agreed.value().space),
      agreed.value().global_lock_home, Hints(request.flavor, request.info), RuntimeResources::instance().is_threaded(),
      check, std::move(logs), agreed.value().id);
  WindowTable::instance().insert(handle, std::move(window));
  count_farside_window();
  return {};
}

void leave_to_runtime(const char* call, const char* reason) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string>();
  count_runtime_window();
  const std::scoped_lock held(mutex);
  if (said->insert(fmt::format("{}: {}", call, reason)).second) {
    log(LogLevel::kWarn, "{}: this window stays with the MPI runtime: {}", call, reason);
  }
}

}  // namespace farside::pmpi
