// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/communicator_group.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "epochs/protocols/lock_words.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/waiter.hpp"
#include "transport/node/identity.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Waits for a collective of the runtime. The waiter yields its core. A blocking collective of MPICH would poll instead,
// and with more ranks than cores it would use up the time slices of other ranks.
Status finish(int begun_well, MPI_Request& request, const char* call) {
  if (Status carried = status_of(begun_well, call); !carried) return carried;
  int arrived = 0;
  for (Waiter waiter(Process::instance(), Process::instance().own_wake_event());; waiter.pause()) {
    Status carried = status_of(runtime().Test(&request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (!carried || arrived != 0) return carried;
  }
}

// Collective: replaces values of the ranks by their reduction.
Status reduce(MPI_Comm communicator, void* values, std::size_t count, MPI_Datatype type, MPI_Op op) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      runtime().Iallreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, op, communicator, &request);
  return finish(code, request, "MPI_Iallreduce");
}

}  // namespace

Result<std::unique_ptr<CommunicatorGroup>> CommunicatorGroup::of(MPI_Comm communicator) {
  int rank = 0, ranks = 0;
  Status known = status_of(runtime().Comm_rank(communicator, &rank), "MPI_Comm_rank");
  if (known) known = status_of(runtime().Comm_size(communicator, &ranks), "MPI_Comm_size");
  if (!known) return known.error();
  return std::unique_ptr<CommunicatorGroup>(new CommunicatorGroup(communicator, rank, ranks));
}

Result<CommunicatorGroup*> CommunicatorGroup::find_kept(std::unique_ptr<CommunicatorGroup>& fresh) {
  const auto delete_group = [](MPI_Comm, int, void* group, void*) {
    delete static_cast<CommunicatorGroup*>(group);
    return static_cast<int>(MPI_SUCCESS);
  };
  const int key = library().resources->communicator_key(delete_group);
  if (key == MPI_KEYVAL_INVALID)
    return Error{ErrorKind::kNoMemory, "the runtime made no key for an attribute of communicators"};
  const MPI_Comm communicator = fresh->communicator_;
  void* known = nullptr;
  int found = 0;
  const int code = runtime().Comm_get_attr(communicator, key, static_cast<void*>(&known), &found);
  if (Status status = status_of(code, "MPI_Comm_get_attr"); !status) return status.error();
  if (found != 0) return static_cast<CommunicatorGroup*>(known);
  if (Status set = status_of(runtime().Comm_set_attr(communicator, key, fresh.get()), "MPI_Comm_set_attr"); !set)
    return set.error();
  return fresh.release();
}

CommunicatorGroup::~CommunicatorGroup() {
  // A failure only loses memory.
  if (leaders_communicator_ != MPI_COMM_NULL) (void)runtime().Comm_free(&leaders_communicator_);
}

Status CommunicatorGroup::combine(std::span<std::uint64_t> words) {
  return reduce(communicator_, words.data(), words.size(), MPI_UINT64_T, MPI_BOR);
}

Status CommunicatorGroup::take_lowest(int& number) { return reduce(communicator_, &number, 1, MPI_INT, MPI_MIN); }

Status CommunicatorGroup::broadcast(std::span<std::byte> bytes, int root) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      runtime().Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, communicator_, &request);
  return finish(code, request, "MPI_Ibcast");
}

// A reduction of what each rank has at its place, and zeros elsewhere: a non-blocking allgather of Open MPI sends
// each rank's part from everyone to everyone, and a first window of 256 ranks on 2 cores then took 24 s.
Status CommunicatorGroup::gather(std::span<const std::byte> own, std::span<std::byte> all) {
  std::ranges::fill(all, std::byte{0});
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(own.size()) * rank());
  return reduce(communicator_, all.data(), all.size(), MPI_BYTE, MPI_BOR);
}

Status CommunicatorGroup::take_highest(int& number) { return reduce(communicator_, &number, 1, MPI_INT, MPI_MAX); }

Status CommunicatorGroup::meet(std::uint64_t id, bool one_node) {
  constexpr std::uint64_t kTheSame = 1;
  if (!epochs::WaiterId::has_room_for(ranks())) {
    return Error{ErrorKind::kNoRoute, fmt::format("it has {} ranks, and the control words have room for {}", ranks(),
                                                  epochs::WaiterId::kMostRanks)};
  }
  Result<Nodes> found = find_nodes(Process::instance(), one_node ? kTheSame : node_identity());
  if (!found) return found.status();
  Nodes& nodes = found.value();
  if (one_node && nodes.own->members() < ranks()) return {};
  join(std::move(nodes.own), nodes.partner, id);
  node_count_ = nodes.count;
  // With one rank on each of several nodes, the leaders are all ranks.
  nodes_ = nodes.largest == 1 && nodes.leaders.size() > 1 ? 0 : nodes.leaders.size();
  flat_ = std::make_shared<epochs::BarrierSchedule>(epochs::BarrierSchedule::flat(rank(), ranks()));
  by_nodes_.reset();
  if (nodes_ > 1 && nodes.largest <= epochs::BarrierSchedule::kMostMembers) {
    by_nodes_ = std::make_shared<epochs::BarrierSchedule>(
        epochs::BarrierSchedule::by_nodes(nodes.members, static_cast<std::size_t>(node().index()), nodes.leaders));
  }
  leaders_ = nodes_ > 1 && node().leads() ? std::move(nodes.leaders) : std::vector<int>();
  return {};
}

bool CommunicatorGroup::can_combine() {
  if (spaces() == 2 && nodes_ > 1) {
    const bool made = node()
                          .exchange_by_leader('\0', Process::instance(),
                                              [&](const std::vector<char>&) { return make_leaders_communicator(); })
                          .result;
    if (!made) nodes_ = 0;
  }
  return nodes_ == 1 || (nodes_ > 1 && spaces() > 1);
}

PeerAddresses CommunicatorGroup::find_addresses(std::uint64_t identity) {
  const TemporaryGroup group(communicator_);
  if (!group) return {};
  std::vector<int> own(static_cast<std::size_t>(ranks())), there(own.size());
  std::iota(own.begin(), own.end(), 0);
  for (const KnownDirectory& known : library().resources->directories()) {
    const int code =
        runtime().Group_translate_ranks(group.handle, ranks(), own.data(), known.group->handle, there.data());
    if (code != MPI_SUCCESS || std::ranges::find(there, MPI_UNDEFINED) != there.end()) continue;
    if (!known.best && known.directory.size() != own.size()) continue;
    if (known.directory.of(there[static_cast<std::size_t>(rank())]).identity == identity)
      return known.directory.of_group(std::move(there));
  }
  return {};
}

void CommunicatorGroup::keep(const PeerAddresses& directory, bool best) {
  auto group = std::make_shared<const TemporaryGroup>(communicator_);
  if (*group) library().resources->add_directory({std::move(group), directory, best});
}

Status CommunicatorGroup::combine_leaders(std::span<std::uint64_t> words) {
  return nodes_ > 1 ? reduce(leaders_communicator_, words.data(), words.size(), MPI_UINT64_T, MPI_BOR) : Status();
}

// Either all leaders make it or none does: the runtime agrees on it.
bool CommunicatorGroup::make_leaders_communicator() {
  const TemporaryGroup all(communicator_);
  TemporaryGroup leading;
  const std::vector<int> leaders = std::exchange(leaders_, {});
  return all &&
         runtime().Group_incl(all.handle, static_cast<int>(leaders.size()), leaders.data(), &leading.handle) ==
             MPI_SUCCESS &&
         runtime().Comm_create_group(communicator_, leading.handle, 0, &leaders_communicator_) == MPI_SUCCESS &&
         runtime().Comm_set_errhandler(leaders_communicator_, MPI_ERRORS_RETURN) == MPI_SUCCESS;
}

}  // namespace farside::pmpi
