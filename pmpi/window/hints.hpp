// SPDX-License-Identifier: BSD-3-Clause
// The hints of a window (MPI 4.1 section 12.2.1 and 12.2.7). farside reports those in effect; none changes a result.
// Three have an effect at creation (creation.cpp): alloc_shared_noncontig and mpi_minimum_memory_alignment on where
// memory lies, and mpi_accumulate_granularity, with MPICH's which_accumulate_ops, on what combines 64-bit integers.
//
// Thread safety: one thread at a time (Window holds its guard). Errors: MPI_ERR_NO_MEM if the runtime makes no info.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <mpi.h>

#include "pmpi/fault.hpp"
#include "transport/base/settings.hpp"

namespace farside::pmpi {

// MPI_ERR_INFO if the runtime knows no such info object. `info` may be MPI_INFO_NULL.
Status check_info(MPI_Info info);

// Whether an info object, which may be MPI_INFO_NULL, has the value "true" for the key.
bool is_true(MPI_Info info, const char* key);

// Whether the hints say that accumulates consist of single elements and of operations that adapters can execute:
// mpi_accumulate_granularity, in bytes, is at most that of a 64-bit integer (0, the default, leaves the choice to
// farside), and which_accumulate_ops, if it is given, lists sum, no_op and cswap only. `info` may be MPI_INFO_NULL.
bool asserts_single_elements(MPI_Info info);

// The key mpi_minimum_memory_alignment (MPI 4.1 sections 9.2 and 12.2.2).
inline constexpr const char* kMinimumAlignment = "mpi_minimum_memory_alignment";
// Returns its value, in bytes; 1 if the key is missing or its value is no power of two. `info` may be MPI_INFO_NULL.
std::uint64_t minimum_alignment(MPI_Info info);

// Whether memory may be larger than what is free: FARSIDE_OVERCOMMIT, or the key farside_overcommit.
bool allows_overcommit(MPI_Info info);

// From which NUMA nodes the memory of a window comes: the key farside_numa, or else FARSIDE_NUMA.
Numa numa_of(MPI_Info info);

// How often in a row the exclusive lock of a rank of another node may pass from rank to rank of this one
// (epochs/protocols/near_lock.hpp), by the key farside_near_hand_offs. `info` may be MPI_INFO_NULL.
std::uint32_t near_hand_offs(MPI_Info info);

// Whether an info object, which may be MPI_INFO_NULL, has other hints than those of farside's MPI_Alloc_mem.
bool has_other_hints(MPI_Info info);

// Whether windows of a flavor come with memory: that of MPI_Win_allocate, and that of MPI_Win_allocate_shared.
bool allocates_memory(int flavor);

class Hints {
 public:
  // Starts with the defaults of a window of this flavor, and takes the info object that was given at creation.
  // `contiguous`: shared memory is, whatever this rank has asked for. `same_size`, `same_unit`: those of all ranks are.
  Hints(int flavor, MPI_Info info, bool contiguous, bool same_size, bool same_unit);
  // Replaces earlier hints; those that have their effect at creation only there. Unknown keys, invalid values (MPI 4.0
  // section 10) and untrue assertions are ignored.
  void take(MPI_Info info, bool at_creation = false);
  // Makes a new info object with all current hints. The caller frees it.
  Status report(MPI_Info* info) const;

 private:
  bool same_size_, same_unit_;
  std::map<std::string, std::string> values_;
};

}  // namespace farside::pmpi
