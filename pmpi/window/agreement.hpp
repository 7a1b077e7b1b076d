// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a communicator agree while they make a window. In each step every rank contributes its value, or its
// failure, and all ranks see the same result. If a collective of the runtime fails (a rank has died), the ranks that
// the runtime notifies get an error of kind kPeer.
//
// Thread safety: one thread per object, and no concurrent collective call on the communicator.
// Cost: one collective of the runtime per function; at each rank O(ranks) time and memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "transport/base/result.hpp"

namespace farside::pmpi {

class Agreement {
 public:
  explicit Agreement(MPI_Comm communicator);
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // The first step: checks that every rank runs this version of farside with the same settings (else kBadSetting). If a
  // rank does not answer within 10 s (perhaps a rank without the library), logs a warning and continues to wait.
  std::optional<Error> handshake(const Status& own, const char* call);

  // Fills `all` with the contributions, or returns the failure of the lowest failed rank. The kind is the same on all
  // ranks; a rank that failed itself returns its own text.
  template <class T>
  std::optional<Error> exchange(const T& own, const Status& status, std::vector<T>& all) {
    static_assert(std::is_trivially_copyable_v<T>);
    struct Entry {
      std::int32_t failed;  // 0, or 1 + ErrorKind
      T value;
    };
    const Entry mine{failure_code(status), own};
    std::vector<Entry> entries(static_cast<std::size_t>(ranks_));
    const Status carried =
        status_of(PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, entries.data(), sizeof mine, MPI_BYTE, communicator_),
                  "MPI_Allgather");
    if (!carried) return carried.error();
    all.clear();
    for (const Entry& entry : entries) all.push_back(entry.value);
    for (int r = 0; r < ranks_; ++r) {
      if (const std::int32_t failed = entries[static_cast<std::size_t>(r)].failed; failed != 0) {
        return failure(r, failed, status);
      }
    }
    return std::nullopt;
  }
  // Fails if any rank failed.
  std::optional<Error> confirm(const Status& status) {
    std::vector<char> all;
    return exchange('\0', status, all);
  }
  // Return the bits that any rank has set, and those that all ranks have set.
  Result<unsigned> any(unsigned bits) { return combine(bits, MPI_BOR); }
  Result<unsigned> all(unsigned bits) { return combine(bits, MPI_BAND); }

 private:
  static std::int32_t failure_code(const Status& status) {
    return status ? 0 : 1 + static_cast<std::int32_t>(status.error().kind);
  }
  Result<unsigned> combine(unsigned bits, MPI_Op how) {
    unsigned all = 0;
    const Status carried = status_of(PMPI_Allreduce(&bits, &all, 1, MPI_UNSIGNED, how, communicator_), "MPI_Allreduce");
    if (!carried) return carried.error();
    return all;
  }
  Error failure(int rank, std::int32_t code, const Status& own) const;

  MPI_Comm communicator_;
  int rank_ = 0;
  int ranks_ = 1;
  std::optional<Error> unknown_;  // set if the runtime did not return rank or size
};

// Returns which ranks of the communicator are on this node (MPI_Comm_split_type): one byte per rank. Collective at the
// first call for a communicator; then the list is an attribute of the communicator, and valid as long as it. Errors:
// kPeer if a call of the runtime fails; kNoMemory if the runtime makes no attribute key.
Result<const std::vector<char>*> same_node(MPI_Comm communicator);

}  // namespace farside::pmpi
