// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/strict.hpp"

#include <optional>

#include <fmt/format.h>

namespace farside::pmpi {
namespace {

using epochs::AccessLog;
using epochs::ByteRange;
using epochs::LocalUse;

Outcome conflict_at_target(const AccessLog::Conflict& with) {
  return Fault{MPI_ERR_RMA_CONFLICT,
               fmt::format("bytes {} to {} of rank {}'s window are in use by {} (operation {} of this rank on this "
                           "window), which is not complete; flush between the two, or let both accumulate with one "
                           "type (MPI 4.0 section 12.7)",
                           with.range.first, with.range.last, with.target, with.name, with.number)};
}

Outcome conflict_in_memory(const AccessLog::Conflict& with) {
  return Fault{MPI_ERR_RMA_CONFLICT,
               fmt::format("{} bytes of the local buffer, at {:#x}, are in use by {} towards rank {} (operation {} of "
                           "this rank on this window), which is not complete; flush between the two, or use another "
                           "buffer (MPI 4.0 section 12.7)",
                           with.range.last - with.range.first, with.range.first, with.name, with.target, with.number)};
}

}  // namespace

Outcome Strict::walk(Then then, const Side& local, LocalUse use, const Target& target) {
  BytePieces pieces(*local.type->layout, static_cast<std::size_t>(local.count), *target.type->layout,
                    static_cast<std::size_t>(target.count));
  for (BytePiece piece; pieces.next(piece);) {
    const auto here = static_cast<std::uint64_t>(reinterpret_cast<std::intptr_t>(local.address) + piece.origin_offset);
    const auto there = static_cast<std::uint64_t>(target.at + piece.target_offset);
    const ByteRange in_memory{here, here + piece.bytes};
    const ByteRange at_target{there, there + piece.bytes};
    if (then == Then::kAdd) {
      log_.add_in_memory(in_memory, use);
      log_.add_at_target(at_target);
      continue;
    }
    if (const auto conflict = log_.at_target(at_target)) return conflict_at_target(*conflict);
    if (const auto conflict = log_.in_memory(in_memory, use)) return conflict_in_memory(*conflict);
  }
  return {};
}

Outcome Strict::transfer(const Side& origin, const Target& target, bool put) {
  const std::scoped_lock held(mutex_);
  const LocalUse use = put ? LocalUse::kRead : LocalUse::kWritten;
  log_.begin({put ? "MPI_Put" : "MPI_Get", target.rank, put ? epochs::Use::kPut : epochs::Use::kGet, 0});
  if (Outcome o = walk(Then::kLook, origin, use, target); !o) return o;
  return walk(Then::kAdd, origin, use, target);
}

Outcome Strict::accumulate(const char* call, const Side* origin, const Side* result, const Target& target,
                           BasicType type) {
  const std::scoped_lock held(mutex_);
  log_.begin({call, target.rank, epochs::Use::kAccumulate, static_cast<int>(type)});
  for (const Then then : {Then::kLook, Then::kAdd}) {
    if (origin != nullptr) {
      if (Outcome o = walk(then, *origin, LocalUse::kRead, target); !o) return o;
    }
    if (result != nullptr) {
      if (Outcome o = walk(then, *result, LocalUse::kWritten, target); !o) return o;
    }
  }
  return {};
}

void Strict::completed(int target) {
  const std::scoped_lock held(mutex_);
  log_.completed(target);
}
void Strict::completed_all() {
  const std::scoped_lock held(mutex_);
  log_.completed_all();
}
void Strict::locally_completed(int target) {
  const std::scoped_lock held(mutex_);
  log_.locally_completed(target);
}

}  // namespace farside::pmpi
