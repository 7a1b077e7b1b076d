// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/message_handler.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/data/layout.hpp"
#include "transport/handler/attached_regions.hpp"

namespace farside {
namespace {

constexpr const char* kInaccessible = "memory that cannot be accessed";

const char* find_fault(const ControlStep& step, const MessageHandler::ServedSpace& space) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (step.call > ControlCall::kWrite) return "no control call";
  if (step.words() - 1 >= kMostWordsRead) return "no number of words";
  const std::size_t bytes = step.words() * kWord;
  const bool inside = space.control_bytes >= bytes && step.word <= space.control_bytes - bytes;
  return inside && step.word % kWord == 0 ? nullptr : "no control word";
}

// Checks the first of two steps.
const char* find_fault_of_acquire_step(const ControlStep& step, const MessageHandler::ServedSpace& space) {
  if (step.call != ControlCall::kFetchAdd) return "no acquire step";
  // Deferred locks are for windows whose memory stays.
  return space.attached == nullptr ? find_fault(step, space) : "an acquire step before attached memory";
}

// Executes a step on one control word and returns its former value. Sequentially consistent: the step publishes the
// puts before it, as accesses of on-node peers to control words do.
std::uint64_t take(const ControlStep& step, std::byte* control) {
  const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(control + step.word));
  switch (step.call) {
    case ControlCall::kFetchAdd: return word.fetch_add(step.operand, std::memory_order_seq_cst);
    case ControlCall::kRead: return word.load(std::memory_order_seq_cst);
    case ControlCall::kWrite: return word.exchange(step.operand, std::memory_order_seq_cst);
    case ControlCall::kCompareAndSwap: break;
  }
  std::uint64_t before = step.compare;
  word.compare_exchange_strong(before, step.operand, std::memory_order_seq_cst);
  return before;
}

bool inside(const DataOperation& operation, const MessageHandler::ServedSpace& space) {
  const Wide one = operation.offset;
  const Wide other = one + static_cast<Wide>(operation.stride) * (operation.blocks - 1);
  return std::min(one, other) >= 0 &&
         std::max(one, other) + span_of(operation.type, operation.count) <= static_cast<Wide>(space.bytes);
}

// Returns whether the operation needs the accumulate lock now. (Integers may need it only when they are executed, if
// another thread changes their method meanwhile.)
bool needs_lock(const DataOperation& operation, const MessageHandler::ServedSpace& space) {
  if (!operation.atomic()) return false;
  const BasicType type = operation.type;
  if (space.always_locked || !has_cpu_atomics(type)) return true;
  const std::byte* const target = space.base + operation.offset;
  if (atomic_method(type, target) == AtomicMethod::kLocked ||
      atomic_method(type, target + operation.stride) == AtomicMethod::kLocked)
    return true;
  const std::size_t blocks = space.attached == nullptr ? operation.blocks : 1;
  return space.integers != nullptr && space.integers->locks_in_common(operation.count * blocks);
}

// Returns null if the whole list is well formed and within the space. Sets `locks` if it needs the accumulate lock, and
// `fetched_bytes` to those that it fetches.
const char* find_fault(std::span<const std::byte> list, const MessageHandler::ServedSpace& space, bool& locks,
                       std::size_t& fetched_bytes) {
  OperationListReader reader(list);
  for (DataOperation operation; reader.next(operation);) {
    if (!inside(operation, space)) return "beyond the space";
    locks = locks || needs_lock(operation, space);
  }
  fetched_bytes = reader.fetched_bytes();
  return reader.fault();
}

// To be released or ended after an access that has failed, too. All blocks of a list share one acquisition of the lock:
// a message holds less than kLockedBytes (routes/route.hpp).
struct Begun {
  Begun() {}
  std::optional<AccumulateLock> lock;
  IntegerPhase by = IntegerPhase::kLock;
};

void execute_one(const DataOperation& operation, const MessageHandler::ServedSpace& space, Begun& begun) {
  const auto& [kind, op, type, access, offset, count, origin, back, compare, blocks, stride, dense] = operation;
  std::byte* target = space.base + offset;
  const auto* sent = static_cast<const std::byte*>(origin);
  auto* fetched = static_cast<std::byte*>(back);
  switch (kind) {
    case OperationKind::kPut: copy_ranges(target, stride, sent, dense, count, blocks); return;
    case OperationKind::kGet: copy_ranges(fetched, dense, target, stride, count, blocks); return;
    case OperationKind::kAccumulate:
    case OperationKind::kCompareAndSwap: break;
  }
  auto& [lock, by] = begun;
  by = IntegerPhase::kLock;
  if (!space.always_locked && has_cpu_atomics(type)) {
    by = space.integers == nullptr ? IntegerPhase::kAtomics : space.integers->begin(count * blocks, true);
  }
  if (by == IntegerPhase::kLock && kind == OperationKind::kAccumulate) {
    if (!lock) lock.emplace(*space.lock);
    return combine_rows(op, type, target, sent, fetched, count, blocks, {stride, dense, dense});
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    const AtomicMethod method = by == IntegerPhase::kLock ? AtomicMethod::kLocked : atomic_method(type, target);
    if (!lock && (method == AtomicMethod::kLocked || by == IntegerPhase::kBoth)) lock.emplace(*space.lock);
    if (kind == OperationKind::kCompareAndSwap) {
      compare_and_swap(method, type, target, sent, compare, fetched);
    } else {
      combine(method, op, type, target, sent, fetched, count);
    }
    target += stride;
    if (sent != nullptr) sent += dense;
    if (fetched != nullptr) fetched += dense;
  }
  if (space.integers != nullptr) space.integers->end(by, true);
  by = IntegerPhase::kLock;
}

// Returns null, or why the rest of the list is skipped, for instance at the first block whose memory is not attached.
// The list may be in a message ring or in a slot of a message queue, where a faulty peer could change it after
// find_fault(), so each operation is checked again.
const char* execute_list(std::span<const std::byte> list, MessageHandler::ServedSpace& space,
                         std::span<std::byte> fetched, Begun& begun, const void*& fault) {
  OperationListReader reader(list, fetched);
  for (DataOperation operation; reader.next(operation);) {
    if (!inside(operation, space)) return "changed while it was executed";
    if (space.attached == nullptr) {
      execute_one(operation, space, begun);
      continue;
    }
    for (; operation.blocks > 0; operation = operation.behind(1)) {
      std::byte* target = space.base + operation.offset;
      const std::size_t span = span_of(operation.type, operation.count);
      DataOperation block = operation;
      block.blocks = 1;
      const auto work = [&] {
        MemoryFault here(target, span);
        if (__builtin_setjmp(here.here()) == 0) execute_one(block, space, begun);
        fault = here.address();
      };
      if (!space.attached->while_attached(reinterpret_cast<std::uint64_t>(target), span, work)) return "not attached";
      if (fault != nullptr) return kInaccessible;
    }
  }
  return reader.fault();
}

// The same, and catches faults. (Of a dynamic space, execute_list() catches those of each block.)
[[gnu::noinline]] const char* execute_and_catch(std::span<const std::byte> list, MessageHandler::ServedSpace& space,
                                                std::span<std::byte> fetched, Begun& begun, const void*& fault) {
  MemoryFault in_space(space.base, space.attached == nullptr ? space.bytes : 0);
  if (__builtin_setjmp(in_space.here()) == 0) return execute_list(list, space, fetched, begun, fault);
  fault = in_space.address();
  return kInaccessible;
}

}  // namespace

void MessageHandler::log_refusal(const Answer& answer, const ServedSpace* space, std::uint32_t sender) {
  (void)without_bad_alloc([&] {
    if (answer.fault == nullptr)
      return log(LogLevel::kWarn, "a request to the handler was refused: {}", answer.refused);
    log(LogLevel::kError,
        "rank {} of the window {} accesses {} in this process, which is not mapped, not writable, or beyond the end "
        "of a file",
        sender,
        space->attached != nullptr ? "that is dynamic"
                                   : fmt::format("of {} bytes at {}", space->bytes, fmt::ptr(space->base)),
        answer.fault);
  });
}

MessageHandler::Answer MessageHandler::execute(std::span<const std::byte> message, std::vector<std::byte> memory,
                                               std::chrono::microseconds timeout) {
  Answer answer;
  answer.fetched = std::move(memory);
  answer.fetched.clear();
  RequestHeader request{};
  ServedSpace* space = nullptr;
  if (message.size() < sizeof request) {
    answer.refused = "shorter than its header";
  } else {
    std::memcpy(&request, message.data(), sizeof request);
    const auto found = spaces_.find(request.space);
    if (found == spaces_.end() || request.sender >= found->second.ranks) {
      answer.refused = "unknown space or sender";
    } else {
      space = &found->second;
      answer.known_sender = true;
      answer.header = {MessageKind::kReply, ReplyStatus::kDone, 0, request.generation, request.operation};
      execute_request(request, message.subspan(sizeof request), *space, timeout, answer);
    }
  }
  if (answer.refused != nullptr) [[unlikely]] {
    answer.fetched.clear();
    if (answer.header.status == ReplyStatus::kDone) answer.header.status = ReplyStatus::kRefused;
    if (answer.fault != nullptr) answer.header.status = ReplyStatus::kInaccessible;
    log_refusal(answer, space, request.sender);
  }
  return answer;
}

void MessageHandler::execute_request(const RequestHeader& request, std::span<const std::byte> payload,
                                     ServedSpace& space, std::chrono::microseconds timeout, Answer& answer) {
  // From the first step on nothing needs memory.
  const auto make_room = [&](std::size_t bytes) {
    if (bytes <= answer.fetched.capacity()) [[likely]]
      return true;
    const Status made = without_bad_alloc([&] { patiently([&] { answer.fetched.reserve(bytes); }); });
    if (made) return true;
    answer.refused = "out of memory";
    answer.header.status = ReplyStatus::kNoMemory;
    return false;
  };
  if (request.kind == MessageKind::kRegions) {
    if (space.attached == nullptr) {
      answer.refused = "no regions are attached here";
    } else if (!payload.empty() || request.count % sizeof(Region) != 0 || request.count > kMaxPayload) {
      answer.refused = "bad length";
    } else if (make_room(request.count)) {
      answer.fetched.resize(request.count);
      const std::span regions(reinterpret_cast<Region*>(answer.fetched.data()), request.count / sizeof(Region));
      space.attached->read(static_cast<int>(request.sender), request.offset, regions);
    }
    return;
  }
  if (request.kind == MessageKind::kDescribe) {
    const std::span<const std::byte> description(space.description.data(), space.description_bytes);
    if (!payload.empty() || request.count != description.size()) {
      answer.refused = "bad length";
    } else if (make_room(description.size())) {
      answer.fetched.assign(description.begin(), description.end());
    }
    return;
  }
  std::array<ControlStep, kMostControls> steps{};
  const std::size_t controls = request.controls;
  const std::size_t step_bytes = controls * sizeof(ControlStep);
  if (controls > kMostControls || payload.size() < step_bytes) {
    answer.refused = "bad length";
    return;
  }
  const std::span<const std::byte> list = payload.first(payload.size() - step_bytes);
  std::memcpy(steps.data(), payload.data() + list.size(), step_bytes);
  const bool opens = controls == kMostControls;
  if (opens) answer.refused = find_fault_of_acquire_step(steps.front(), space);
  if (answer.refused == nullptr && controls > 0) answer.refused = find_fault(steps[controls - 1], space);
  bool locks = false;
  constexpr std::size_t kOfSteps = (1 + kMostWordsRead) * sizeof(std::uint64_t);
  std::size_t fetched_bytes = 0;
  if (answer.refused == nullptr) answer.refused = find_fault(list, space, locks, fetched_bytes);
  if (answer.refused != nullptr || !make_room(fetched_bytes + kOfSteps)) return;
  Begun begun;
  if (locks && !begun.lock.emplace(*space.lock, timeout).held()) {
    answer.deferred = true;
    return;
  }
  const auto append = [&](std::uint64_t word) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&word);
    answer.fetched.insert(answer.fetched.end(), bytes, bytes + sizeof word);
  };
  const std::uint64_t before = opens ? take(steps.front(), space.control) : 0;
  if ((before & steps.front().compare) != 0 && opens) {
    answer.header.status = ReplyStatus::kStopped;
    append(before);
    return;
  }
  answer.fetched.resize(fetched_bytes);
  answer.refused = execute_and_catch(list, space, answer.fetched, begun, answer.fault);
  if (answer.fault != nullptr && space.integers != nullptr) space.integers->end(begun.by, true);
  // Also after a list that ended early: others wait for the release of a lock, or for a notification.
  if (opens) append(before);
  if (controls > 0) {
    ControlStep& last = steps[controls - 1];
    for (std::size_t left = last.words(); left > 0; --left, last.word += sizeof(std::uint64_t))
      append(take(last, space.control));
  }
}

}  // namespace farside
