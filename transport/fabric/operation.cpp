// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/operation.hpp"

#include <cstring>

namespace farside {

Operation* OperationPool::take_answer(std::span<const std::byte> message) {
  ReplyHeader header;
  if (message.size() < sizeof header) return nullptr;
  std::memcpy(&header, message.data(), sizeof header);
  const std::uint64_t index = header.operation ^ mask_;
  if (index >= all_.size()) return nullptr;
  Operation& operation = all_[index];
  if (!operation.awaits_reply || operation.generation != header.generation) return nullptr;
  const std::span<const std::byte> fetched = message.subspan(sizeof header);
  const std::size_t listed = operation.list != nullptr ? operation.list->fetched_bytes() : 0;
  if (header.status != ReplyStatus::kDone) {
    operation.pending->failed(Error{ErrorKind::kRange, "the target's agent refused the request"});
  } else if (fetched.size() != listed + operation.fetched_bytes) {
    operation.pending->failed(Error{ErrorKind::kPeer, "the target's agent answered with a wrong length"});
  } else {
    if (listed > 0) operation.list->deliver(fetched);
    if (operation.fetched_bytes > 0) std::memcpy(operation.fetched, fetched.data() + listed, operation.fetched_bytes);
  }
  operation.awaits_reply = false;
  return &operation;
}

}  // namespace farside
