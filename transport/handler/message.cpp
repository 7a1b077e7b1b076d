// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/message.hpp"

#include <algorithm>
#include <cstring>

#include "transport/base/threads.hpp"
#include "transport/data/layout.hpp"
#include "transport/node/integer_method.hpp"

namespace farside {
namespace {

// The memory that a list has at first: a burst of some dozens of small operations.
constexpr std::size_t kFirstBytes = 512;

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

const char* find_fault(const ListEntry& entry) {
  if (static_cast<std::size_t>(entry.op) >= kReduceOps || static_cast<std::size_t>(entry.type) >= kBasicTypes) {
    return "unknown operation or type";
  }
  // Each factor is bounded before the product, so the product does not overflow.
  if (entry.count == 0 || entry.count > kMaxPayload || entry.blocks == 0 || entry.blocks > kMaxPayload ||
      entry.block_bytes() * entry.blocks > kMaxPayload) {
    return "bad element count";
  }
  switch (entry.kind) {
    case OperationKind::kPut:
    case OperationKind::kGet: {
      const bool put = entry.kind == OperationKind::kPut;
      const bool good = entry.type == BasicType::kByte && entry.op == (put ? ReduceOp::kReplace : ReduceOp::kNoOp) &&
                        (entry.fetch != 0) == !put;
      return good ? nullptr : "a malformed put or get";
    }
    case OperationKind::kAccumulate:
      if (!allowed(entry.op, entry.type)) return "operation not defined for the type";
      return entry.op == ReduceOp::kNoOp && entry.fetch == 0 ? "an operation that does nothing" : nullptr;
    case OperationKind::kCompareAndSwap:
      if (has_gap(entry.type)) return "operation not defined for the type";
      return entry.count == 1 && entry.blocks == 1 && entry.fetch != 0 ? nullptr : "bad element count";
  }
  return "unknown kind of operation";
}

}  // namespace

// Adds the blocks of `entry` to the last entry, if they continue its pattern.
bool OperationList::extends_last(const ListEntry& entry) {
  if (bytes_.empty() || entry.kind == OperationKind::kCompareAndSwap) return false;
  if (last_.kind != entry.kind || last_.op != entry.op || last_.type != entry.type || last_.fetch != entry.fetch ||
      last_.count != entry.count) {
    return false;
  }
  // The handler takes an entry for one row. Short rows must not be merged into a long one, because a long row ends the
  // use of CPU atomics. Whether that happens must depend on each operation alone, and not on the operations that are
  // coalesced with it.
  const std::uint64_t elements = std::uint64_t{entry.count} * entry.blocks;
  if (entry.kind == OperationKind::kAccumulate && has_cpu_atomics(entry.type) && elements < IntegerMethod::kLongRow &&
      std::uint64_t{last_.count} * last_.blocks + elements >= IntegerMethod::kLongRow) {
    return false;
  }
  const auto step = static_cast<std::int64_t>(entry.offset - last_.offset -
                                              static_cast<std::uint64_t>(last_.stride) * (last_.blocks - 1));
  if ((last_.blocks > 1 && step != last_.stride) || (entry.blocks > 1 && step != entry.stride)) return false;
  last_.stride = step;
  last_.blocks += entry.blocks;
  return true;
}

DataOperation take_part(DataOperation& rest, std::size_t most_bytes) {
  DataOperation part = rest;
  const std::size_t extent = traits(rest.type).extent;
  part.count = std::min(rest.count, most_bytes / extent);
  const std::size_t bytes = part.count * extent;
  rest.offset += bytes;
  rest.count -= part.count;
  if (rest.origin != nullptr) rest.origin = static_cast<const std::byte*>(rest.origin) + bytes;
  if (rest.fetched != nullptr) rest.fetched = static_cast<std::byte*>(rest.fetched) + bytes;
  return part;
}

std::size_t OperationList::add(const DataOperation& operation) {
  ListEntry entry{operation.kind,
                  operation.op,
                  operation.type,
                  std::uint8_t{operation.fetched != nullptr},
                  static_cast<std::uint32_t>(operation.count),
                  operation.offset,
                  0,
                  1,
                  0};
  const std::size_t sent_by_one = entry.data_bytes();
  const std::size_t fetched_by_one = entry.fetched_bytes();
  // kMostBytes and bytes_.size() are multiples of 8, so the padding fits, too.
  const std::size_t taken = bytes_.size() + sizeof entry;
  if (operation.blocks == 0 || taken > kMostBytes) return 0;
  const std::size_t room = kMostBytes - taken, fetched_room = kMostFetched - fetched_bytes_;
  if (sent_by_one > room || fetched_by_one > fetched_room) return 0;
  std::size_t fit = operation.blocks;
  if (fit > 1) {
    if (sent_by_one > 0) fit = std::min(fit, room / sent_by_one);
    if (fetched_by_one > 0) fit = std::min(fit, fetched_room / fetched_by_one);
  }
  entry.blocks = static_cast<std::uint32_t>(fit);
  if (fit > 1) entry.stride = operation.stride;
  const std::size_t sent = sent_by_one * fit;
  // First the memory: without it the list stays as it is.
  const auto make_room = [](auto& vector, std::size_t needed, std::size_t least) {
    if (vector.capacity() < needed) vector.reserve(std::max({least, needed, 2 * vector.capacity()}));
  };
  make_room(bytes_, padded(taken + sent), kFirstBytes);
  if (operation.fetched != nullptr) make_room(fetching_, fetching_.size() + 1, 1);
  std::size_t at = 0;
  if (extends_last(entry)) {
    at = last_at_ + sizeof entry + last_.data_bytes() - sent;
  } else {
    last_at_ = bytes_.size();
    last_ = entry;
    at = last_at_ + sizeof entry;
  }
  bytes_.resize(padded(at + sent));
  std::memcpy(bytes_.data() + last_at_, &last_, sizeof last_);
  if (operation.kind == OperationKind::kCompareAndSwap) {
    std::memcpy(bytes_.data() + at, operation.compare, sent / 2);
    std::memcpy(bytes_.data() + at + sent / 2, operation.origin, sent / 2);
  } else if (sent > 0) {
    // The application's last element need not have a gap behind it.
    copy_ranges(bytes_.data() + at, static_cast<std::ptrdiff_t>(sent_by_one),
                static_cast<const std::byte*>(operation.origin), operation.origin_stride,
                span_of(operation.type, operation.count), fit);
  }
  if (operation.fetched != nullptr) {
    fetching_.push_back(operation);
    fetching_.back().blocks = fit;
    fetched_bytes_ += fetched_by_one * fit;
  }
  has_atomics_ = has_atomics_ || operation.atomic();
  return fit;
}

std::unique_ptr<OperationList>& OperationList::spare() { return PerThread<std::unique_ptr<OperationList>>::here(); }

std::unique_ptr<OperationList> OperationList::take_spare() {
  if (spare() == nullptr) return std::make_unique<OperationList>();
  return std::move(spare());
}

void OperationList::keep_spare(std::unique_ptr<OperationList> list) {
  list->clear();
  (void)without_bad_alloc([&] { spare() = std::move(list); });  // for the thread's first one
}

void OperationList::deliver(std::span<const std::byte> fetched) const {
  const std::byte* from = fetched.data();
  for (const DataOperation& each : fetching_) {
    const std::size_t bytes = each.bytes();
    auto* buffer = static_cast<std::byte*>(each.fetched);
    if (has_gap(each.type)) {
      // kReplace leaves the gaps of the buffer unchanged.
      for (std::size_t block = 0; block < each.blocks; ++block, buffer += each.origin_stride)
        combine(AtomicMethod::kLocked, ReduceOp::kReplace, each.type, buffer, from + block * bytes, nullptr,
                each.count);
    } else {
      copy_ranges(buffer, each.origin_stride, from, static_cast<std::ptrdiff_t>(bytes), bytes, each.blocks);
    }
    from += bytes * each.blocks;
  }
}

Status HandlerRequest::deliver(ReplyStatus status, std::span<const std::byte> data, const OperationList* list) const {
  const bool stopped = status == ReplyStatus::kStopped && locked != nullptr;
  if (status != ReplyStatus::kDone && !stopped) return refusal(status);
  const std::size_t listed = list != nullptr && !stopped ? list->fetched_bytes() : 0;
  const std::size_t words = stopped ? sizeof locked->words.front() : fetched.size();
  if (data.size() != listed + words)
    return Error{ErrorKind::kPeer, "the target's handler answered with a wrong length"};
  if (listed > 0) list->deliver(data);
  if (words > 0) std::memcpy(fetched.data(), data.data() + listed, words);
  if (locked != nullptr) locked->stopped = stopped;
  return {};
}

bool OperationListReader::read(DataOperation& operation) {
  ListEntry entry;
  if (fault_ != nullptr) return false;
  if (rest_.size() < sizeof entry) {
    fault_ = "an operation is cut off";
    return false;
  }
  std::memcpy(&entry, rest_.data(), sizeof entry);
  fault_ = find_fault(entry);
  if (fault_ != nullptr) return false;
  const std::size_t bytes = entry.data_bytes(), block_bytes = entry.block_bytes();
  std::byte* const fetched = entry.fetch != 0 && fetched_ != nullptr ? fetched_ + fetched_bytes_ : nullptr;
  fetched_bytes_ += entry.fetched_bytes();
  if (rest_.size() - sizeof entry < padded(bytes)) fault_ = "bad length";
  if (fetched_bytes_ > most_fetched_) fault_ = "more is asked for than a message holds";
  if (fault_ != nullptr) return false;
  const std::byte* const data = bytes > 0 ? rest_.data() + sizeof entry : nullptr;
  const bool swap = entry.kind == OperationKind::kCompareAndSwap;
  operation = {entry.kind, entry.op, entry.type, Access::kShared, entry.offset, entry.count,
               swap ? data + block_bytes : data, fetched, swap ? data : nullptr, entry.blocks,
               // A single block uses no stride, and the sender may have sent any value.
               entry.blocks == 1 ? 0 : entry.stride, static_cast<std::ptrdiff_t>(block_bytes)};
  rest_ = rest_.subspan(sizeof entry + padded(bytes));
  return true;
}

}  // namespace farside
