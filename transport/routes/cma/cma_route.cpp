// SPDX-License-Identifier: BSD-3-Clause
#include "transport/routes/cma/cma_route.hpp"

#include <algorithm>
#include <array>
#include <sys/uio.h>
#include <utility>

#include "transport/base/pause.hpp"
#include "transport/base/timing.hpp"
#include "transport/data/layout.hpp"
#include "transport/data/reduce_op.hpp"
#include "transport/node/process_memory.hpp"
#include "transport/process.hpp"

namespace farside {
namespace {

// Messages to a handler that polls, two of which are under way at once, move so many bytes of a put or get in less time
// than a system call. Accumulates go by messages whatever their size.
constexpr std::size_t kMostByMessage = 2 * OperationList::kMostInOne;
// Up to so many blocks, one process_vm_writev(2) (2 us, and 0.4 us per block) is faster than a list to the handler,
// whose thread takes 10 to 20 us to wake. The same of fragments, without the handler: a system call (2 us) moves one,
// and two combine one. (A thread that polls moves a message in 1 to 4 us.)
constexpr std::size_t kFewForOneCall = 24;
constexpr std::size_t kFewToMove = 8;
constexpr std::size_t kFewToCombine = 3;

Status named(Status status, int rank) {
  if (status) return status;
  Error error = status.error();
  error.rank = rank;
  return error;
}

// Whether the kernel has refused an access, which the target can do itself: the target has become not dumpable.
bool is_refused(const Status& status) { return !status && status.error().kind == ErrorKind::kNoRoute; }

// The same as has_executed_posted(), with a short wait. A target that has not executed the posted lists usually is
// about to do so, since it leaves the same fence as this rank.
bool executes_soon(const PeerNodeHandler& handler) {
  for (int probes = 0; !handler.has_executed_posted(); ++probes) {
    if (probes == Timing::kSpins) return false;
    relax();
  }
  return true;
}

}  // namespace

Status CmaRoute::operate(int rank, const DataOperation& operation, Pending* /*own*/) {
  NodeTargetExtra& memory = entry(rank);
  if (Status status = before_access(memory); !status) return status;
  DataOperation rest = operation;
  // The bytes of a gap may be other data, which may change meanwhile: only the target itself leaves them alone.
  const bool only_by_message = has_gap(operation.type);
  if (operation.atomic() || operation.bytes() <= kMostByMessage) {
    if (Status sent = by_messages(memory, rest, only_by_message); !sent || rest.count == 0) return sent;
  }
  Status done = by_system_calls(memory, rest);
  return is_refused(done) ? by_messages(memory, rest, true) : std::move(done);
}

// After an error, `rest` has the elements that are left.
Status CmaRoute::by_system_calls(const NodeTargetExtra& memory, DataOperation& rest) {
  const std::uint64_t at = memory.address + rest.offset;
  if (rest.kind == OperationKind::kPut) return write_process_memory(memory.pid, at, rest.origin, rest.count);
  if (rest.kind == OperationKind::kGet) return read_process_memory(memory.pid, at, rest.fetched, rest.count);
  return accumulate(memory, rest);
}

// Executes a list as the target's handler would. Errors: kNoRoute if nothing was executed: the kernel refuses, or only
// the handler can execute the list.
Status CmaRoute::by_system_calls(const NodeTargetExtra& memory, const OperationList& list) {
  std::vector<std::byte> fetched(list.fetched_bytes());
  bool first = true;
  DataOperation operation;
  for (OperationListReader reader(list.bytes()); reader.next(operation);)
    if (has_gap(operation.type)) return Error{ErrorKind::kNoRoute, {}};
  for (OperationListReader reader(list.bytes(), fetched); reader.next(operation);) {
    for (; operation.blocks > 0; operation = operation.behind(1)) {
      DataOperation block = operation;
      if (Status status = by_system_calls(memory, block); !status)
        return first ? std::move(status) : Error{ErrorKind::kPeer, status.error().text};
      first = false;
    }
  }
  list.deliver(fetched);
  return {};
}

Status CmaRoute::execute(const NodeTargetExtra& memory, std::span<const std::unique_ptr<OperationList>> lists) {
  const auto by_system_call = [&](const OperationList& list) {
    Status done = by_system_calls(memory, list);
    const auto one = std::ranges::find(lists, &list, &std::unique_ptr<OperationList>::get);
    for (bool unanswered = is_refused(done); unanswered;) {
      unanswered = false;
      done = memory.handler->execute(Process::instance(), std::span(&*one, 1), [&](const OperationList&) {
        unanswered = true;
        return Status();
      });
    }
    return done;
  };
  // By reference: a std::function allocates memory for what this lambda captures.
  return memory.handler->execute(Process::instance(), lists, std::cref(by_system_call));
}

// Sends messages for as long as the target polls its message queue, or until nothing is left. Up to kSlots messages
// are under way at once.
Status CmaRoute::by_messages(const NodeTargetExtra& memory, DataOperation& rest, bool all) {
  std::array<std::unique_ptr<OperationList>, MessageQueue::kSlots> lists;
  lists.front() = OperationList::take_spare();
  Status executed;
  while (executed && rest.count > 0 && (all || memory.handler->is_polling())) {
    std::size_t count = 0;
    for (; count < lists.size() && rest.count > 0; ++count) {
      std::unique_ptr<OperationList>& list = lists[count];
      const DataOperation part = take_part(rest);
      patiently([&] {
        if (list == nullptr) list = std::make_unique<OperationList>();
        list->clear();
        list->add(part);
      });
    }
    executed = execute(memory, std::span(lists.data(), count));
  }
  OperationList::keep_spare(std::move(lists.front()));
  return executed;
}

Status CmaRoute::before_access(NodeTargetExtra& memory) {
  Status queued = any() ? send_queued(&CmaRoute::write, &memory) : Status();
  if (executes_soon(*memory.handler)) [[likely]]
    return queued;
  const std::array nothing{std::make_unique<OperationList>()};
  Status executed = execute(memory, nothing);
  return queued ? std::move(executed) : std::move(queued);
}

Status CmaRoute::queue_put(int rank, const DataOperation& put, Pending* own, Until until) {
  if (put.bytes() > kMostQueued) return carry_out(rank, put, own);
  count(rank, Counted::kPut, put.bytes());
  NodeTargetExtra& memory = entry(rank);
  std::unique_ptr<OperationList> full;
  {
    const auto held = lock();
    if (memory.queued == nullptr) memory.queued = std::make_unique<OperationList>();
    if (memory.queued->empty()) {
      memory.queued_until_end = posts_ && until == Until::kEnd;
      with_queued_.push_back(&memory);
      queued_.fetch_add(1, std::memory_order_relaxed);
    }
    if (memory.queued->add(put)) return {};
    auto next = std::make_unique<OperationList>();
    next->add(put);
    full = std::exchange(memory.queued, std::move(next));
  }
  if (Status sent = named(release_one(memory, full), memory.rank); !sent) report_later(std::move(sent));
  return {};
}

Status CmaRoute::flush(int rank, bool /*locally*/) {
  if (!any()) return {};
  NodeTarget* const here = node_.find(rank);
  NodeTargetExtra* const memory = here != nullptr ? node_.extra(*here) : nullptr;
  return memory != nullptr ? send_queued(&CmaRoute::write, memory) : Status();
}

std::size_t CmaRoute::fewest_in_list(int rank, bool atomic) const {
  return 1 + (entry(rank).handler->is_polling() ? 1 : atomic ? kFewToCombine : kFewToMove);
}

std::optional<Status> CmaRoute::move_blocks(int rank, const DataOperation& operation, std::size_t fragments) {
  const std::size_t bytes = operation.count, blocks = operation.blocks, all = bytes * blocks;
  if (blocks == 1 || operation.atomic()) return std::nullopt;
  NodeTargetExtra& memory = entry(rank);
  const std::ptrdiff_t stride = operation.stride, origin_stride = operation.origin_stride;
  const bool is_put = operation.kind == OperationKind::kPut, dense = stride == static_cast<std::ptrdiff_t>(bytes);
  const bool polling = memory.handler->is_polling();
  const auto* const from = static_cast<const std::byte*>(operation.origin);
  auto* const to = static_cast<std::byte*>(operation.fetched);
  const std::uint64_t at = memory.address + operation.offset;
  if (is_put) {
    const bool by_one_call = dense ? all > kMostByMessage || !polling : fragments <= (polling ? 1 : kFewForOneCall);
    if (!by_one_call) return std::nullopt;
    if (Status before = before_access(memory); !before) return before;
    Status written = write_process_memory(memory.pid, at, stride, from, origin_stride, bytes, blocks);
    if (is_refused(written)) return std::nullopt;
    count(rank, Counted::kPut, all);
    return written;
  }
  // A handler that polls is slower only with a large range without gaps. Attached memory may have holes between blocks.
  const bool by_reading =
      is_reading_gaps_faster(bytes, blocks, stride) && ((dense && all > kMostByMessage) || !polling);
  if (dynamic_ || !by_reading) return std::nullopt;
  if (Status before = before_access(memory); !before) return before;
  // The memory between the blocks may not be mapped at the target.
  if (!read_process_memory(memory.pid, at, stride, to, origin_stride, bytes, blocks)) return std::nullopt;
  count(rank, Counted::kGet, all);
  return Status();
}

Status CmaRoute::send_lists(int rank, std::span<std::unique_ptr<OperationList>> lists, Pending* /*own*/,
                            bool /*last*/) {
  NodeTargetExtra& memory = entry(rank);
  Status before = before_access(memory);
  Status executed = execute(memory, lists);
  OperationList::keep_spare(std::move(lists.front()));
  return before ? std::move(executed) : std::move(before);
}

Status CmaRoute::ask_for_regions(int rank, std::uint64_t address, std::span<std::byte> regions) {
  return entry(rank).handler->ask_for_regions(Process::instance(), address, regions);
}

// Posted lists have no order. So the first list of an epoch is posted only if the posted lists of earlier epochs, of
// all processes, are executed.
Status CmaRoute::post(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list) {
  if (memory.posted || executes_soon(*memory.handler)) {
    if (memory.handler->post(*list)) {
      memory.posted = true;
      return {};
    }
  }
  return execute(memory, std::span(&list, 1));
}

// Returns when the puts of the list are complete.
Status CmaRoute::write(NodeTargetExtra& memory, std::unique_ptr<OperationList>& list) {
  if (memory.handler->is_polling() || !executes_soon(*memory.handler)) return execute(memory, std::span(&list, 1));
  std::vector<iovec> here, there;
  DataOperation operation;
  for (OperationListReader reader(list->bytes()); reader.next(operation);) {
    const std::size_t together = operation.stride == operation.origin_stride ? operation.blocks : 1;
    for (; operation.blocks > 0; operation = operation.behind(together)) {
      const std::uint64_t at = memory.address + operation.offset;
      const std::size_t bytes = operation.count * together;
      here.push_back({const_cast<void*>(operation.origin), bytes});
      there.push_back({reinterpret_cast<void*>(at), bytes});  // NOLINT(performance-no-int-to-ptr)
    }
    if (there.size() > kFewForOneCall) return execute(memory, std::span(&list, 1));
  }
  Status written = write_process_memory(memory.pid, here, there);
  return is_refused(written) ? execute(memory, std::span(&list, 1)) : std::move(written);
}

// Sends the lists of all targets, or of one. Returns the first error.
Status CmaRoute::send_queued(Send send, NodeTargetExtra* only) {
  Status first;
  while (true) {
    NodeTargetExtra* memory = nullptr;
    std::unique_ptr<OperationList> list;
    {
      const auto held = lock();
      if (!failed_) {
        first.keep(std::exchange(failed_, Status()));
        queued_.fetch_sub(1, std::memory_order_relaxed);
      }
      const auto next = only == nullptr ? with_queued_.begin() : std::ranges::find(with_queued_, only);
      if (next == with_queued_.end()) return first;
      memory = *next;
      with_queued_.erase(next);
      queued_.fetch_sub(1, std::memory_order_relaxed);
      list = std::move(memory->queued);
    }
    Status sent =
        without_bad_alloc([&] { return named(patiently([&] { return (this->*send)(*memory, list); }), memory->rank); });
    memory->posted = false;
    first.keep(std::move(sent));
    list->clear();
    const auto held = lock();
    if (memory->queued == nullptr) memory->queued = std::move(list);
  }
}

// Reads, combines and writes back in parts, so that no other rank waits long for the lock.
Status CmaRoute::accumulate(const NodeTargetExtra& memory, DataOperation& rest) {
  const BasicType type = rest.type;
  rules_.count_slow(counts_, type, nullptr, false);
  alignas(16) std::array<std::byte, kLockedBytes> copy;
  while (rest.count > 0) {
    DataOperation behind = rest;
    const DataOperation part = take_part(behind, kLockedBytes);
    const std::uint64_t at = memory.address + part.offset;
    const std::size_t span = span_of(type, part.count);
    const AccumulateLock held(*memory.lock);
    if (Status read = read_process_memory(memory.pid, at, copy.data(), span); !read) return read;
    if (part.kind == OperationKind::kCompareAndSwap) {
      farside::compare_and_swap(AtomicMethod::kLocked, type, copy.data(), part.origin, part.compare, part.fetched);
    } else {
      combine(AtomicMethod::kLocked, part.op, type, copy.data(), static_cast<const std::byte*>(part.origin),
              static_cast<std::byte*>(part.fetched), part.count);
    }
    if (part.op != ReduceOp::kNoOp) {
      if (Status written = write_process_memory(memory.pid, at, copy.data(), span); !written) return written;
    }
    rest = behind;
  }
  return {};
}

}  // namespace farside
