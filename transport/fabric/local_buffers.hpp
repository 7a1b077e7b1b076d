// SPDX-License-Identifier: BSD-3-Clause
// Preparation of operands and messages for the provider. Where local buffers must be registered, they are copied to or
// from a slot of registered memory, or get a registration of their own (local_memory.hpp). Otherwise the provider gets
// their addresses.
//
// All functions may be called again for an operation if the provider had no room: the data are copied, and a slot is
// taken, only once. Not thread-safe: Fabric calls them under its mutex. Errors: negative libfabric codes, those of
// LocalMemory::take. Cost: a copy of at most LocalMemory::kSlotBytes.
#pragma once

#include <cstddef>
#include <sys/types.h>
#include <sys/uio.h>

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/fabric/handles.hpp"
#include "transport/fabric/local_memory.hpp"
#include "transport/fabric/operation.hpp"

namespace farside {

// A local buffer as the provider takes it.
struct ProviderBuffer {
  void* at = nullptr;
  void* descriptor = nullptr;
};

// The data that an operation sends, or the place where it receives data. `registered`: the registration of a buffer
// larger than a slot, which the operation takes. Return 0 or a negative libfabric code.
int outgoing(LocalMemory& memory, Operation& operation, const void* from, std::size_t bytes,
             FabricHandle<fid_mr>& registered, ProviderBuffer& local);
int incoming(LocalMemory& memory, Operation& operation, void* into, std::size_t bytes, FabricHandle<fid_mr>& registered,
             ProviderBuffer& local);

// Sends one message of several parts. `slot`: that of the context, which the message takes if it needs one.
ssize_t send_message(LocalMemory& memory, fid_ep* endpoint, const iovec* parts, std::size_t count,
                     LocalMemory::Slot*& slot, Context& context);

}  // namespace farside
