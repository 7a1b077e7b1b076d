// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/buffers.hpp"

#include <cstring>
#include <utility>

#include "transport/fabric/operation.hpp"

namespace farside {

namespace {

void* descriptor_of(Operation& operation, FabricHandle<fid_mr>& registered) {
  if (registered != nullptr) operation.registered = std::move(registered);
  return fi_mr_desc(operation.registered.get());
}

}  // namespace

int outgoing(LocalMemory& memory, Operation& operation, const void* from, std::size_t bytes,
             FabricHandle<fid_mr>& registered, ProviderBuffer& local) {
  if (!memory.needed()) {
    local = {const_cast<void*>(operation.operands.take(from, bytes)), nullptr};
    return 0;
  }
  if (bytes > LocalMemory::kSlotBytes) {
    local = {const_cast<void*>(from), descriptor_of(operation, registered)};
    return 0;
  }
  if (operation.slot == nullptr) {
    if (const int code = memory.take(true, operation.slot); code != 0) return code;
    std::memcpy(operation.slot->bytes, from, bytes);
  }
  local = {operation.slot->bytes, operation.slot->descriptor};
  return 0;
}

int incoming(LocalMemory& memory, Operation& operation, void* into, std::size_t bytes, FabricHandle<fid_mr>& registered,
             ProviderBuffer& local) {
  local = {into, nullptr};
  if (!memory.needed()) return 0;
  if (bytes > LocalMemory::kSlotBytes) {
    local.descriptor = descriptor_of(operation, registered);
    return 0;
  }
  if (operation.slot == nullptr) {
    if (const int code = memory.take(true, operation.slot); code != 0) return code;
  }
  operation.into = into;
  operation.into_bytes = bytes;
  local = {operation.slot->bytes, operation.slot->descriptor};
  return 0;
}

ssize_t send_message(LocalMemory& memory, fid_ep* endpoint, const iovec* parts, std::size_t count,
                     LocalMemory::Slot*& slot, Context& context) {
  if (!memory.needed()) {
    const fi_msg message{parts, nullptr, count, FI_ADDR_UNSPEC, &context.provider_context, 0};
    return fi_sendmsg(endpoint, &message, FI_COMPLETION);
  }
  if (slot == nullptr) {
    if (const int code = memory.take(context.kind == Context::Kind::kOperation, slot); code != 0) return code;
  }
  iovec whole{slot->bytes, 0};
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > 0) std::memcpy(slot->bytes + whole.iov_len, parts[i].iov_base, parts[i].iov_len);
    whole.iov_len += parts[i].iov_len;
  }
  const fi_msg message{&whole, &slot->descriptor, 1, FI_ADDR_UNSPEC, &context.provider_context, 0};
  return fi_sendmsg(endpoint, &message, FI_COMPLETION);
}

}  // namespace farside
