// SPDX-License-Identifier: BSD-3-Clause
// Entry points: memory allocation (MPI 4.0 section 9.2). Programs allocate before they make their first window, so
// farside always gives memory that on-node peers can map. This costs a few system calls each and one descriptor in all,
// and starts nothing else.
#include "pmpi/entries/entry.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// The runtime handles requests with hints (kinds of memory, alignment).
bool has_hints(MPI_Info info) {
  int keys = 0;
  return info != MPI_INFO_NULL && (PMPI_Info_get_nkeys(info, &keys) != MPI_SUCCESS || keys > 0);
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Alloc_mem, (MPI_Aint size, MPI_Info info, void* base)) {
  // The first window reports a bad setting.
  const farside::Result<const farside::Settings*> settings = farside::Process::instance().settings();
  if (size > 0 && !has_hints(info) && settings && settings.value()->mapped) {
    const auto made = farside::Process::instance().shareable_memory().allocate(static_cast<std::size_t>(size));
    if (made) {
      *static_cast<void**>(base) = made.value();
      return MPI_SUCCESS;
    }
  }
  return runtime().Alloc_mem(size, info, base);
}

FARSIDE_ENTRY(Free_mem, (void* base)) {
  if (farside::Process::instance().shareable_memory().free(base)) return MPI_SUCCESS;
  return runtime().Free_mem(base);
}
