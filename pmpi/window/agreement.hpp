// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a communicator agree while they make a window: each step, every rank contributes what it has, or
// why it failed, and all see the same. If the runtime itself fails to carry that (a rank has died), those ranks that it
// tells get an error of kind kPeer; what the others see is the runtime's, too.
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

  // First contact: that every rank runs this farside with the same settings. Says so when somebody does not come for
  // 10 s (perhaps a rank without the library), and goes on waiting.
  std::optional<Error> handshake(const Status& own, const char* call);

  // Everyone's contribution, or the failure that all agree on: the lowest failed rank's, the own text if it is own.
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
  // Whether all succeeded.
  std::optional<Error> confirm(const Status& status) {
    std::vector<char> all;
    return exchange('\0', status, all);
  }
  // Bits that any rank has set, that all have set.
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
  std::optional<Error> unknown_;  // if the runtime does not say which rank this is
};

// Which ranks of the communicator are on this node (MPI_Comm_split_type). Collective at the first time for a
// communicator, then kept as an attribute of it, and valid as long. Errors: kPeer, what the runtime fails in;
// kNoMemory, if it keeps no attribute.
Result<const std::vector<char>*> same_node(MPI_Comm communicator);

}  // namespace farside::pmpi
