// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict, the origin's view: the accesses that one origin has issued and not completed. Finds
// conflicting accesses (MPI 4.0 section 12.7) and local buffers that are used again too early. No I/O, no MPI; not
// thread-safe; no remote operations. Lookups and insertions are logarithmic in the number of ranges, and linear in
// the number of open requests.
//
// Two accesses to the same bytes of a target may overlap in time if both only read, or if both are atomic on one
// basic type (those of one origin are ordered). Two accesses to the same local bytes may overlap if both only read.
// So at any time a byte has one kind of use, except that atomic reads may overlap with gets and with accumulates.
// Atomic reads are kept in a map of their own, so that the ranges of each map are disjoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "epochs/races/strided_run.hpp"

namespace farside::epochs {

enum class LocalUse : std::uint8_t { kRead, kWritten };  // of the origin's memory

class AccessLog {
 public:
  struct Operation {
    const char* name;  // the MPI call, for reports
    int target;
    Use use;
    int basic_type;          // of an atomic operation; any number that tells types apart
    bool answered = false;   // an atomic operation that fetches: once its result is here, it is complete at the target
    bool requested = false;  // has a request, which may complete it alone
  };
  // The earlier operation of a conflict: its number since the log was made, and the bytes where the two meet.
  struct Conflict {
    const char* name;
    int target;
    std::uint64_t number;
    ByteRange range;
    bool requested;
  };

  // Begins the next operation.
  void begin(const Operation& operation);
  // The first conflict of the current operation at the target, or in the origin's memory. Changes nothing.
  std::optional<Conflict> at_target(ByteRange range) const;
  std::optional<Conflict> in_memory(ByteRange range, LocalUse use) const;
  // Records the access, after both of the above found no conflict.
  void add_at_target(ByteRange range);
  void add_in_memory(ByteRange range, LocalUse use);

  // All operations to the target, or to all targets, are complete.
  void completed(int target);
  void completed_all();
  // Operations to the target are complete at the origin: all of them, by flush_local, or the one with this number, by
  // its request (no effect if it was complete before). Gets and answered operations are then complete at the target
  // as well, other updates are not.
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
  using Ranges = std::map<std::uint64_t, Entry>;  // by first byte; disjoint

  struct Target {
    Ranges others, fetches;  // fetches: those of Use::kFetch
  };
  // An operation with a request. Its ranges are kept apart from all others, since the request may be completed before
  // or after these.
  struct Requested {
    int target;
    Ranges at_target, memory;
  };

  static std::optional<Conflict> find(const Ranges& ranges, ByteRange range, AccessKind kind);
  static void add(Ranges& ranges, ByteRange range, const Entry& entry);
  // The entry of the current operation.
  Entry entry(AccessKind kind) const {
    const bool reads = operation_.use == Use::kGet || operation_.use == Use::kFetch;
    return {0, kind, reads || operation_.answered, operation_.requested, operation_.name, operation_.target, number_};
  }
  Requested& requested() { return requested_.try_emplace(number_, Requested{operation_.target, {}, {}}).first->second; }
  // Moves the accesses that are not complete at the target to the others of that target.
  void join_others(const Requested& requested);
  AccessKind kind_at_target() const { return {operation_.use, operation_.basic_type}; }
  // Local reads may overlap with local reads.
  static AccessKind kind_of(LocalUse use) { return {use == LocalUse::kRead ? Use::kGet : Use::kPut, 0}; }

  Operation operation_{};
  std::uint64_t number_ = 0;
  std::map<int, Target> targets_;
  Ranges memory_;
  std::map<std::uint64_t, Requested> requested_;  // by number of the operation
};

}  // namespace farside::epochs
