// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/agreement.hpp"

#include <chrono>
#include <memory>
#include <numeric>

#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Change it with everything that ranks must have in common: descriptors, control block, messages, the sequence of
// collectives here.
constexpr std::uint64_t kProtocol = 0x6661'7273'6964'0008;
constexpr std::chrono::seconds kPatience{10};

struct Handshake {
  std::uint64_t protocol;
  std::int32_t failed;
  std::int32_t routes;     // settings that must agree
  std::uint64_t provider;  // hash of its name
};

std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return value;
}

int delete_node_list(MPI_Comm, int, void* value, void*) {
  delete static_cast<std::vector<char>*>(value);
  return MPI_SUCCESS;
}

}  // namespace

Agreement::Agreement(MPI_Comm communicator) : communicator_(communicator) {
  Status known = status_of(PMPI_Comm_rank(communicator, &rank_), "MPI_Comm_rank");
  if (known) known = status_of(PMPI_Comm_size(communicator, &ranks_), "MPI_Comm_size");
  if (!known) unknown_ = known.error();
}

Error Agreement::failure(int rank, std::int32_t code, const Status& own) const {
  // All ranks decide by the kind, so it is the lowest failed rank's on all; the text may be this rank's.
  return Error{static_cast<ErrorKind>(code - 1),
               own ? fmt::format("rank {} failed; see its message", rank) : own.error().text};
}

std::optional<Error> Agreement::handshake(const Status& own, const char* call) {
  if (unknown_) return unknown_;
  Handshake mine{kProtocol, failure_code(own), 0, 0};
  if (own) {
    const Settings& settings = *Process::instance().settings().value();
    mine.routes = (settings.mapped ? 1 : 0) | (settings.cma ? 2 : 0) | (settings.fabric ? 4 : 0);
    mine.provider = hash(settings.provider);
  }
  std::vector<Handshake> all(static_cast<std::size_t>(ranks_));
  MPI_Request request = MPI_REQUEST_NULL;
  const int begun_well =
      PMPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, communicator_, &request);
  if (Status carried = status_of(begun_well, "MPI_Iallgather"); !carried) return carried.error();
  const auto begun = std::chrono::steady_clock::now();
  bool warned = false;
  int arrived = 0;
  for (Waiter waiter(Process::instance(), Process::instance().own_wake_event());;) {
    if (Status carried = status_of(runtime().Test(&request, &arrived, MPI_STATUS_IGNORE), "MPI_Test"); !carried) {
      return carried.error();
    }
    if (arrived != 0) break;
    waiter.pause();
    if (!warned && std::chrono::steady_clock::now() - begun > kPatience) {
      warned = true;
      log(LogLevel::kWarn,
          "{}: a rank has not made this call for {} s; is farside loaded on every rank "
          "(mpirun -x LD_PRELOAD)?",
          call, kPatience.count());
    }
  }
  for (int r = 0; r < ranks_; ++r) {
    const Handshake& theirs = all[static_cast<std::size_t>(r)];
    if (theirs.protocol != kProtocol) {
      return Error{ErrorKind::kBadSetting, fmt::format("rank {} runs another version of farside", r)};
    }
    if (theirs.failed != 0) return failure(r, theirs.failed, own);
    if (theirs.routes != all[0].routes || theirs.provider != all[0].provider) {
      return Error{
          ErrorKind::kBadSetting,
          fmt::format("rank {} has other values of FARSIDE_ROUTES or FARSIDE_PROVIDER than rank 0; they must agree",
                      r)};
    }
  }
  return std::nullopt;
}

namespace {

// Frees the temporary objects. A failure only loses memory.
struct NodeGroups {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Group all = MPI_GROUP_NULL, near = MPI_GROUP_NULL;
  ~NodeGroups() {
    if (all != MPI_GROUP_NULL) (void)PMPI_Group_free(&all);
    if (near != MPI_GROUP_NULL) (void)PMPI_Group_free(&near);
    if (node != MPI_COMM_NULL) (void)PMPI_Comm_free(&node);
  }
};

Status find_node(MPI_Comm communicator, std::vector<char>& list) {
  NodeGroups made;
  int ranks = 0;
  int on_node_peers = 0;
  std::vector<int> local;
  std::vector<int> global;
  Status status = status_of(PMPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made.node),
                            "MPI_Comm_split_type");
  const auto next = [&](const char* call, auto&& step) {
    if (status) status = status_of(step(), call);
  };
  next("MPI_Comm_group", [&] { return PMPI_Comm_group(communicator, &made.all); });
  next("MPI_Comm_group", [&] { return PMPI_Comm_group(made.node, &made.near); });
  next("MPI_Group_size", [&] { return PMPI_Group_size(made.all, &ranks); });
  next("MPI_Group_size", [&] { return PMPI_Group_size(made.near, &on_node_peers); });
  next("MPI_Group_translate_ranks", [&] {
    local.resize(static_cast<std::size_t>(on_node_peers));
    global.resize(local.size());
    std::iota(local.begin(), local.end(), 0);
    return PMPI_Group_translate_ranks(made.near, on_node_peers, local.data(), made.all, global.data());
  });
  if (!status) return status;
  list.assign(static_cast<std::size_t>(ranks), 0);
  for (const int r : global) list[static_cast<std::size_t>(r)] = 1;
  return {};
}

}  // namespace

Result<const std::vector<char>*> same_node(MPI_Comm communicator) {
  const int key = RuntimeResources::instance().communicator_key(delete_node_list);
  if (key == MPI_KEYVAL_INVALID)
    return Error{ErrorKind::kNoMemory, "the runtime made no key for an attribute of communicators"};
  void* known = nullptr;
  int found = 0;
  const int code = PMPI_Comm_get_attr(communicator, key, static_cast<void*>(&known), &found);
  if (Status status = status_of(code, "MPI_Comm_get_attr"); !status) return status.error();
  if (found != 0) return static_cast<const std::vector<char>*>(known);

  auto list = std::make_unique<std::vector<char>>();
  if (Status status = find_node(communicator, *list); !status) return status.error();
  if (Status status = status_of(PMPI_Comm_set_attr(communicator, key, list.get()), "MPI_Comm_set_attr"); !status)
    return status.error();
  return list.release();
}

}  // namespace farside::pmpi
