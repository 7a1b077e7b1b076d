// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/agreement.hpp"

#include <chrono>

#include "pmpi/runtime.hpp"
#include "transport/base/log.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Changes with everything that ranks must have in common: descriptors, control block, messages, the calls by which they agree.
constexpr std::uint64_t kProtocol = 0x6661'7273'6964'0008;
constexpr std::chrono::seconds kPatience{10};

struct Greeting {
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

int make_node_key() {
  int key = MPI_KEYVAL_INVALID;
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_node_list, &key, nullptr);
  return key;
}

}  // namespace

Agreement::Agreement(MPI_Comm communicator) : communicator_(communicator) {
  PMPI_Comm_rank(communicator, &rank_);
  PMPI_Comm_size(communicator, &ranks_);
}

Error Agreement::failure(int rank, std::int32_t code, const Status& own) const {
  // The kind is what all decide by, so it is the lowest failed rank's everywhere; the words may be one's own.
  return Error{static_cast<ErrorKind>(code - 1),
               own ? fmt::format("rank {} failed; see its message", rank) : own.error().text};
}

std::optional<Error> Agreement::greet(const Status& own, const char* call) {
  Greeting mine{kProtocol, failure_code(own), 0, 0};
  if (own) {
    const Settings& settings = *Process::instance().settings().value();
    mine.routes = (settings.mapped ? 1 : 0) | (settings.cma ? 2 : 0) | (settings.fabric ? 4 : 0);
    mine.provider = hash(settings.provider);
  }
  std::vector<Greeting> all(static_cast<std::size_t>(ranks_));
  MPI_Request request = MPI_REQUEST_NULL;
  PMPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, communicator_, &request);
  const auto begun = std::chrono::steady_clock::now();
  bool warned = false;
  int arrived = 0;
  for (Waiter waiter(Process::instance(), Process::instance().own_bell());;) {
    runtime().Test(&request, &arrived, MPI_STATUS_IGNORE);
    if (arrived != 0) break;
    waiter.pause();
    if (!warned && std::chrono::steady_clock::now() - begun > kPatience) {
      warned = true;
      log(LogLevel::kWarn, "{}: some rank has not come here for {} s; if it never does, is farside loaded on every rank "
                           "(mpirun -x LD_PRELOAD)?", call, kPatience.count());
    }
  }
  for (int r = 0; r < ranks_; ++r) {
    const Greeting& theirs = all[static_cast<std::size_t>(r)];
    if (theirs.protocol != kProtocol) {
      return Error{ErrorKind::kBadSetting, fmt::format("rank {} runs another version of farside", r)};
    }
    if (theirs.failed != 0) return failure(r, theirs.failed, own);
    if (theirs.routes != all[0].routes || theirs.provider != all[0].provider) {
      return Error{ErrorKind::kBadSetting,
                   fmt::format("rank {} has other values of FARSIDE_ROUTES or FARSIDE_PROVIDER than rank 0; they must agree", r)};
    }
  }
  return std::nullopt;
}

const std::vector<char>& same_node(MPI_Comm communicator) {
  static const int key = make_node_key();
  void* known = nullptr;
  int found = 0;
  PMPI_Comm_get_attr(communicator, key, static_cast<void*>(&known), &found);
  if (found != 0) return *static_cast<std::vector<char>*>(known);

  MPI_Comm node = MPI_COMM_NULL;
  PMPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Group all_group = MPI_GROUP_NULL;
  MPI_Group node_group = MPI_GROUP_NULL;
  PMPI_Comm_group(communicator, &all_group);
  PMPI_Comm_group(node, &node_group);
  int ranks = 0;
  int neighbours = 0;
  PMPI_Group_size(all_group, &ranks);
  PMPI_Group_size(node_group, &neighbours);
  std::vector<int> local(static_cast<std::size_t>(neighbours));
  std::vector<int> global(local.size());
  for (int i = 0; i < neighbours; ++i) local[static_cast<std::size_t>(i)] = i;
  PMPI_Group_translate_ranks(node_group, neighbours, local.data(), all_group, global.data());
  auto* list = new std::vector<char>(static_cast<std::size_t>(ranks), 0);
  for (const int r : global) (*list)[static_cast<std::size_t>(r)] = 1;
  PMPI_Group_free(&all_group);
  PMPI_Group_free(&node_group);
  PMPI_Comm_free(&node);
  PMPI_Comm_set_attr(communicator, key, list);
  return *list;
}

}  // namespace farside::pmpi
