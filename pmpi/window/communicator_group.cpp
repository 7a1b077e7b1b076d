// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/communicator_group.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "pmpi/fault.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

constexpr std::chrono::seconds kPatience{10};

int delete_peers(MPI_Comm, int, void* value, void*) {
  delete static_cast<CommunicatorPeers*>(value);
  return MPI_SUCCESS;
}

// Waits for a collective of the runtime. The waiter yields, where a blocking collective of MPICH polls: with more ranks
// than cores that takes time slices. Logs `warning`, if it is not null, after kPatience.
Status finish(int begun_well, MPI_Request& request, const char* call, const char* warning = nullptr) {
  if (Status carried = status_of(begun_well, call); !carried) return carried;
  const auto begun = std::chrono::steady_clock::now();
  int arrived = 0;
  for (Waiter waiter(Process::instance(), Process::instance().own_wake_event());; waiter.pause()) {
    Status carried = status_of(runtime().Test(&request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (!carried || arrived != 0) return carried;
    if (warning != nullptr && std::chrono::steady_clock::now() - begun > kPatience)
      log(LogLevel::kWarn, "{}", std::exchange(warning, nullptr));
  }
}

// Frees a temporary group of the runtime. A failure only loses memory.
struct TemporaryGroup {
  MPI_Group handle = MPI_GROUP_NULL;
  ~TemporaryGroup() {
    if (handle != MPI_GROUP_NULL) (void)PMPI_Group_free(&handle);
  }
};

}  // namespace

Result<std::unique_ptr<CommunicatorGroup>> CommunicatorGroup::of(MPI_Comm communicator) {
  int rank = 0, ranks = 0;
  Status known = status_of(PMPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  if (known) known = status_of(PMPI_Comm_size(communicator, &ranks), "MPI_Comm_size");
  if (!known) return known.error();
  return std::unique_ptr<CommunicatorGroup>(new CommunicatorGroup(communicator, rank, ranks));
}

Status CommunicatorGroup::combine(std::span<std::uint64_t> words, const char* warning) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = PMPI_Iallreduce(MPI_IN_PLACE, words.data(), static_cast<int>(words.size()), MPI_UINT64_T, MPI_BOR,
                                   communicator_, &request);
  return finish(code, request, "MPI_Iallreduce", warning);
}

Status CommunicatorGroup::take_lowest(int& number) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = PMPI_Iallreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_MIN, communicator_, &request);
  return finish(code, request, "MPI_Iallreduce");
}

Status CommunicatorGroup::broadcast(std::span<std::byte> bytes, int root) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      PMPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, root, communicator_, &request);
  return finish(code, request, "MPI_Ibcast");
}

Status CommunicatorGroup::gather(std::span<const std::byte> own, std::span<std::byte> all) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = static_cast<int>(own.size());
  const int code =
      PMPI_Iallgather(own.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, communicator_, &request);
  return finish(code, request, "MPI_Iallgather");
}

Result<CommunicatorPeers*> CommunicatorPeers::of(MPI_Comm communicator, Group& group) {
  const int key = RuntimeResources::instance().communicator_key(delete_peers);
  if (key == MPI_KEYVAL_INVALID)
    return Error{ErrorKind::kNoMemory, "the runtime made no key for an attribute of communicators"};
  void* known = nullptr;
  int found = 0;
  const int code = PMPI_Comm_get_attr(communicator, key, static_cast<void*>(&known), &found);
  if (Status status = status_of(code, "MPI_Comm_get_attr"); !status) return status.error();
  if (found != 0) return static_cast<CommunicatorPeers*>(known);

  Result<std::unique_ptr<NodeGroup>> node = find_node(group, Process::instance());
  if (!node) return node.error();
  std::unique_ptr<CommunicatorPeers> peers(new CommunicatorPeers(communicator, std::move(node.value())));
  if (Status status = status_of(PMPI_Comm_set_attr(communicator, key, peers.get()), "MPI_Comm_set_attr"); !status)
    return status.error();
  return peers.release();
}

PeerAddresses CommunicatorPeers::find_addresses() {
  TemporaryGroup group;
  int ranks = 0;
  if (PMPI_Comm_group(communicator_, &group.handle) != MPI_SUCCESS ||
      PMPI_Group_size(group.handle, &ranks) != MPI_SUCCESS)
    return {};
  std::vector<int> own(static_cast<std::size_t>(ranks)), there(own.size());
  std::iota(own.begin(), own.end(), 0);
  for (const KnownDirectory& known : RuntimeResources::instance().directories()) {
    const int code = PMPI_Group_translate_ranks(group.handle, ranks, own.data(), known.group, there.data());
    if (code == MPI_SUCCESS && std::ranges::find(there, MPI_UNDEFINED) == there.end())
      return {known.directory, std::move(there)};
  }
  return {};
}

void CommunicatorPeers::gathered(const std::shared_ptr<const PeerDirectory>& directory) {
  MPI_Group group = MPI_GROUP_NULL;
  if (PMPI_Comm_group(communicator_, &group) == MPI_SUCCESS)
    RuntimeResources::instance().add_directory({group, directory});
}

}  // namespace farside::pmpi
