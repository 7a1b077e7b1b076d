// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict: what one origin has accessed and not completed yet, to find accesses that conflict (MPI 4.0
// section 12.7) and local buffers that are used again too early. Pure: no I/O, no MPI. For debugging, and slow.
//
// Two accesses of the same bytes of a target may both be under way if both only read, or both are atomic on one basic
// type (an origin's are kept in order); of the same local bytes if both only read them. So at any time a byte has one
// kind of use, but that atomic reads meet gets and accumulates: those are in a map of their own, and each map has
// disjoint ranges.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "epochs/races/access_kind.hpp"

namespace farside::epochs {

enum class LocalUse : std::uint8_t { kRead, kWritten };      // at the origin

class AccessLog {
 public:
  struct Operation {
    const char* name;   // the MPI call, for reports
    int target;
    Use use;
    int basic_type;     // of an atomic one; any number that tells types apart
    bool answered = false;   // an atomic one that fetches: when the answer is here, it has been done at the target
    bool requested = false;  // it has a request, which may complete it by itself
  };
  // An earlier operation that is in the way: which one it was of those since the log was made, and where they meet.
  struct Conflict {
    const char* name;
    int target;
    std::uint64_t number;
    ByteRange range;
    bool requested;
  };

  // Begins the next operation.
  void begin(const Operation& operation);
  // Is there a conflict at the target, in the origin's memory? Changes nothing.
  std::optional<Conflict> at_target(ByteRange range) const;
  std::optional<Conflict> in_memory(ByteRange range, LocalUse use) const;
  // Both were asked, and it goes ahead.
  void add_at_target(ByteRange range);
  void add_in_memory(ByteRange range, LocalUse use);

  // All operations to the target, or to all targets, are complete.
  void completed(int target);
  void completed_all();
  // Operations to the target are complete at the origin: all of them by flush_local, or one by its request, which is
  // nothing new if it was complete before. At the target gets are complete as well, and what else is answered; other
  // updates are not.
  void locally_completed(int target);
  void request_completed(std::uint64_t number);

 private:
  struct Entry {
    std::uint64_t last;
    AccessKind kind;
    bool answered;
    bool requested;
    const char* name;
    int target;
    std::uint64_t number;
  };
  using Ranges = std::map<std::uint64_t, Entry>;  // by their first byte; disjoint

  struct Target {
    Ranges others, fetches;  // fetches: Use::kFetch
  };
  // An operation with a request, whose ranges stay apart from all others', as it may be completed before or after
  // these.
  struct Requested {
    int target;
    Ranges at_target, memory;
  };

  static std::optional<Conflict> find(const Ranges& ranges, ByteRange range, AccessKind kind);
  static void add(Ranges& ranges, ByteRange range, const Entry& entry);
  // Of the current operation.
  Entry entry(AccessKind kind) const {
    const bool reads = operation_.use == Use::kGet || operation_.use == Use::kFetch;
    return {0, kind, reads || operation_.answered, operation_.requested, operation_.name, operation_.target, number_};
  }
  Requested& requested() { return requested_.try_emplace(number_, Requested{operation_.target, {}, {}}).first->second; }
  // What is left of one at the target now counts among the others there.
  void join_others(const Requested& requested);
  AccessKind kind_at_target() const { return {operation_.use, operation_.basic_type}; }
  // Of local memory: who reads may meet who reads.
  static AccessKind kind_of(LocalUse use) { return {use == LocalUse::kRead ? Use::kGet : Use::kPut, 0}; }

  Operation operation_{};
  std::uint64_t number_ = 0;
  std::map<int, Target> targets_;
  Ranges memory_;
  std::map<std::uint64_t, Requested> requested_;  // by its number
};

}  // namespace farside::epochs
