// SPDX-License-Identifier: BSD-3-Clause
// libfabric on demand: the interposition library is not linked with libfabric. Its calls of libfabric's functions load
// libfabric when the first of them is made, and find each function by the version with which the linker would bind it
// (dlvsym(3)).
//
// The interposition library is preloaded into many processes that never use the network: ranks of one node, shells,
// launchers. libfabric would bring its own libraries into all of them. Those of Debian for PSM and PSM2 measure the
// clock for 0.1 s each, bound to processor 0, and set handlers for SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV and
// SIGTERM. After it is loaded and started here, the handlers are those that were set before.
//
// Thread safety: any thread. A handler that another thread sets while libfabric is loaded is lost. Errors: where
// libfabric cannot be loaded, fi_getinfo and fi_fabric return -FI_ENOSYS, fi_dupinfo returns null, and fi_strerror the
// reason. Cost: 0.2 s at the first call on Debian 12, else an indirect call.
#pragma once

namespace farside {

// Loads libfabric, and starts it, if the launcher says that the ranks are on several nodes: their first window would
// wait for that. Called by MPI_Init. No call is needed on one node, or where nothing is known.
void start_libfabric_between_nodes();

}  // namespace farside
