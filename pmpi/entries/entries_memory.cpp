// SPDX-License-Identifier: BSD-3-Clause
// Entry points: memory allocation (MPI 4.1 section 9.2). Programs allocate before they make their first window, so
// farside always gives memory that on-node peers can map. This starts no other part of farside. The hints
// mpi_minimum_memory_alignment and farside_overcommit are farside's. Requests with other hints (kinds of memory) go to
// the runtime, and so do those for more than the free memory without overcommitment; if the runtime's memory is not
// aligned as the hint says, farside gives its own instead.
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "pmpi/entries/entry.hpp"
#include "pmpi/window/hints.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Sets `base` to shareable memory.
Status allocate_shareable(MPI_Aint size, MPI_Info info, void* base) {
  ShareableMemory& memory = Process::instance().shareable_memory();
  const auto bytes = static_cast<std::size_t>(size);
  const std::uint64_t alignment = minimum_alignment(info);
  Result<void*> made = memory.allocate(bytes, alignment);
  if (!made && allows_overcommit(info)) made = memory.allocate(bytes, alignment, true);
  if (made) *static_cast<void**>(base) = made.value();
  return made.status();
}

bool is_mapped(const void* base) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char unused;
  return mincore(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(base) & -page), 1, &unused) == 0;
}

int allocate(MPI_Aint size, MPI_Info info, void* base) {
  const bool others = has_other_hints(info);
  if (size > 0 && !others && allocate_shareable(size, info, base)) return MPI_SUCCESS;
  // The runtime gets a copy without alignment: MPICH 4.0 crashes with some values.
  const bool aligns = !value_of(info, kMinimumAlignment).empty();
  MPI_Info copy = MPI_INFO_NULL;
  if (others && runtime().Info_dup(info, &copy) == MPI_SUCCESS && aligns)
    (void)runtime().Info_set(copy, kMinimumAlignment, "1");
  const int code = runtime().Alloc_mem(size, copy, base);
  if (copy != MPI_INFO_NULL) (void)runtime().Info_free(&copy);
  if (code != MPI_SUCCESS || size <= 0) return code;
  void* const given = *static_cast<void**>(base);
  // Without memory MPICH 4.0 returns the size of its header (16).
  if (!is_mapped(given)) {
    *static_cast<void**>(base) = nullptr;
    return raise_without_object(
        "MPI_Alloc_mem", Fault(MPI_ERR_NO_MEM, fmt::format("neither farside nor the runtime has {} bytes", size)));
  }
  if ((reinterpret_cast<std::uintptr_t>(given) & (minimum_alignment(info) - 1)) == 0) return MPI_SUCCESS;
  (void)runtime().Free_mem(given);  // a failure only loses memory
  if (const farside::Status aligned = allocate_shareable(size, info, base); !aligned)
    return raise_without_object("MPI_Alloc_mem", aligned.error());
  return MPI_SUCCESS;
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Alloc_mem, (MPI_Aint size, MPI_Info info, void* base), (size, info, base)) {
  return without_window("MPI_Alloc_mem", [&] { return allocate(size, info, base); });
}

FARSIDE_ENTRY(Free_mem, (void* base), (base)) {
  farside::ShareableMemory& own = farside::Process::instance().shareable_memory();
  if (own.free(base)) return MPI_SUCCESS;
  // The runtimes give the address to free(3), which ends the process if there is no memory.
  if (base == nullptr || (!own.contains(base) && is_mapped(base))) return runtime().Free_mem(base);
  return raise_without_object(
      "MPI_Free_mem",
      Fault(MPI_ERR_BASE, fmt::format("MPI_Alloc_mem has not returned {}, or its memory is freed already", base)));
}
