// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/operation.hpp"

#include <cstring>
#include <utility>

namespace farside {
namespace {

// The data that a reply must bring, in bytes: those of the list, and those behind them.
struct Expected {
  std::size_t listed;
  std::size_t behind;
};

Expected expected_of(const Operation& operation, ReplyStatus status) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (status == ReplyStatus::kStopped) return {0, kWord};
  return {operation.list != nullptr ? operation.list->fetched_bytes() : 0,
          operation.locked_result != nullptr ? kMostControls * kWord : operation.fetched_bytes};
}

// Without memory for the text the reply counts all the same.
template <class Make>
Error error_with_text(Make&& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return Error::out_of_memory();
  }
}

// Fills in the result of a list between two steps. `words`: the previous value of the acquire step's word and, unless
// the list was stopped, of the release step's.
void fill_locked_result(Operation& operation, bool stopped, std::span<const std::byte> words) {
  LockedResult& locked_result = *operation.locked_result;
  locked_result.stopped = stopped;
  std::memcpy(&locked_result.acquire_step, words.data(), sizeof locked_result.acquire_step);
  if (stopped) {
    locked_result.list = std::move(operation.list);
  } else {
    std::memcpy(&locked_result.release_step, words.data() + sizeof locked_result.acquire_step,
                sizeof locked_result.release_step);
  }
}

}  // namespace

Operation* OperationPool::take_reply(std::uint64_t index, const ReplyHeader& header, std::span<const std::byte> data) {
  if (index >= all_.size()) return nullptr;
  Operation& operation = *all_[index];
  if (!operation.awaits_reply || operation.generation != header.generation) return nullptr;
  const bool stopped = header.status == ReplyStatus::kStopped && operation.locked_result != nullptr;
  const auto [listed, behind] = expected_of(operation, header.status);
  if (header.status != ReplyStatus::kDone && !stopped) {
    operation.pending->failed(error_with_text([&] { return refusal(header.status); }));
  } else if (data.size() != listed + behind) {
    operation.pending->failed(
        error_with_text([] { return Error{ErrorKind::kPeer, "the target's handler answered with a wrong length"}; }));
  } else {
    if (listed > 0) operation.list->deliver(data);
    if (operation.locked_result != nullptr) {
      fill_locked_result(operation, stopped, data.subspan(listed));
    } else if (behind > 0) {
      std::memcpy(operation.fetched, data.data() + listed, behind);
    }
  }
  operation.awaits_reply = false;
  return &operation;
}

}  // namespace farside
