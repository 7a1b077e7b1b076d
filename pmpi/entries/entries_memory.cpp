// SPDX-License-Identifier: BSD-3-Clause
// Entry points: memory allocation (MPI 4.1 section 9.2). Programs allocate before they make their first window, so
// farside always gives memory that on-node peers can map. This costs a few system calls per allocation and one file
// descriptor per process, and starts no other part of farside. The hint mpi_minimum_memory_alignment is farside's.
// Requests with other hints (kinds of memory) go to the runtime; if the runtime's memory is not aligned as the hint
// says, farside gives its own instead.
#include <cstdint>

#include "pmpi/entries/entry.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/window/hints.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Sets `base` to shareable memory.
Status allocate(MPI_Aint size, std::uint64_t alignment, void* base) {
  const Result<void*> made = Process::instance().shareable_memory().allocate(static_cast<std::size_t>(size), alignment);
  if (made) *static_cast<void**>(base) = made.value();
  return made.status();
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Alloc_mem, (MPI_Aint size, MPI_Info info, void* base), (size, info, base)) {
  // The first window reports a bad setting.
  const farside::Result<const farside::Settings*> settings = farside::Process::instance().settings();
  const std::uint64_t alignment = minimum_alignment(info);
  const OtherHints others(info);
  const bool shareable = size > 0 && settings && settings.value()->mapped && !others.any();
  if (shareable && allocate(size, alignment, base)) return MPI_SUCCESS;
  const int code = runtime().Alloc_mem(size, others.get(), base);
  if (code != MPI_SUCCESS || size <= 0) return code;
  void* const given = *static_cast<void**>(base);
  if ((reinterpret_cast<std::uintptr_t>(given) & (alignment - 1)) == 0) return MPI_SUCCESS;
  (void)runtime().Free_mem(given);  // a failure only loses memory
  if (const farside::Status aligned = allocate(size, alignment, base); !aligned)
    return raise_without_object("MPI_Alloc_mem", fault_of(aligned.error()));
  return MPI_SUCCESS;
}

FARSIDE_ENTRY(Free_mem, (void* base), (base)) {
  if (farside::Process::instance().shareable_memory().free(base)) return MPI_SUCCESS;
  return runtime().Free_mem(base);
}
