// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict, the origin's view: the accesses that one origin has issued and not completed. Finds
// conflicting accesses (MPI 4.0 section 12.7) and local buffers that are used again too early. No I/O, no MPI; not
// thread-safe; no remote operations. Lookups are logarithmic in the number of ranges, and linear in the number of
// targets and open requests; insertions are logarithmic.
//
// Two accesses to the same bytes of a target may overlap in time if both only read, or if both are atomic on one
// basic type (those of one origin are ordered). Two accesses to the same local bytes may overlap if both only read.
// So at any time a byte has one kind of use, except that atomic reads may overlap with gets and with accumulates.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "epochs/races/strided_run.hpp"

namespace farside::epochs {

class AccessLog {
 public:
  struct Operation {
    const char* name;  // the MPI call, for reports
    int target;
    Use use;
    int basic_type;          // of an atomic operation; any number that tells types apart
    bool answered = false;   // an atomic operation that fetches: once its result is here, it is complete at the target
    bool requested = false;  // has a request, which may complete it alone
    bool notifies = false;   // its target learns alone of it that it is complete
    std::uint16_t site = 0;  // the place of the call in the program
  };
  // The earlier operation of a conflict: its number since the log was made, and the bytes where the two meet.
  struct Conflict {
    const char* name;
    int target;
    std::uint64_t number;
    ByteRange range;
    bool requested;
    std::uint16_t site;
  };

  // Begins the next operation.
  void begin(const Operation& operation) {
    operation_ = operation;
    ++number_;
  }
  // The first conflict of the current operation at the target, or in the origin's memory, which the operation reads as
  // kGet and writes as kPut. Changes nothing.
  std::optional<Conflict> at_target(ByteRange range) const;
  std::optional<Conflict> in_memory(ByteRange range, Use use) const;
  // A target of operations that are not complete: this one, if it has any; nothing if there are none.
  std::optional<int> under_way(int target) const;
  // Records the access, after both of the above found no conflict.
  void add_at_target(ByteRange range);
  void add_in_memory(ByteRange range, Use use);

  // All operations to the target, or to all targets, are complete.
  void completed(int target);
  void completed_all();
  // Operations to the target are complete at the origin: all of them, by flush_local, or the one with this number, by
  // its request (no effect if it was complete before). Gets and answered operations are then complete at the target
  // as well, other updates are not.
  void locally_completed(int target);
  void request_completed(std::uint64_t number);
  // The last operation is complete at the target, which may tell others.
  void notified();

 private:
  // Of equal places, the ranges are disjoint. So atomic reads are kept apart, and the local buffers of each target. The
  // ranges of an operation with a request are kept apart, too, since the request may be completed before or after
  // others.
  enum class Where : std::uint8_t { kTarget, kFetched, kMemory };
  struct Place {
    int target;
    Where where;
    std::uint64_t request;  // number of the operation, if it has one or notifies; else 0
    auto operator<=>(const Place&) const = default;
  };
  struct Entry {
    std::uint64_t last;
    AccessKind kind;
    Operation operation;
    std::uint64_t number;
  };
  using Ranges = std::map<std::uint64_t, Entry>;  // by first byte

  template <class Which>
  std::optional<Conflict> find(ByteRange range, AccessKind kind, Which&& which) const;
  void add(const Place& place, ByteRange range, const Entry& entry);
  // Completes the operations of these places at the origin.
  template <class Which>
  void complete_locally(Which&& which);
  std::uint64_t request() const { return operation_.requested || operation_.notifies ? number_ : 0; }
  AccessKind kind_at_target() const { return {operation_.use, operation_.basic_type}; }

  Operation operation_{};
  std::uint64_t number_ = 0;
  std::map<Place, Ranges> places_;
};

template <class Which>
std::optional<AccessLog::Conflict> AccessLog::find(ByteRange range, AccessKind kind, Which&& which) const {
  for (const auto& [place, ranges] : places_) {
    if (!which(place)) continue;
    auto it = ranges.upper_bound(range.first);
    if (it != ranges.begin() && std::prev(it)->second.last > range.first) --it;
    for (; it != ranges.end() && it->first < range.last; ++it) {
      const auto& [first, entry] = *it;
      if (may_overlap(entry.kind, kind)) continue;
      const ByteRange common{std::max(first, range.first), std::min(entry.last, range.last)};
      return Conflict{entry.operation.name,      place.target,        entry.number, common,
                      entry.operation.requested, entry.operation.site};
    }
  }
  return std::nullopt;
}

inline std::optional<AccessLog::Conflict> AccessLog::at_target(ByteRange range) const {
  return find(range, kind_at_target(),
              [&](const Place& place) { return place.target == operation_.target && place.where != Where::kMemory; });
}

inline std::optional<AccessLog::Conflict> AccessLog::in_memory(ByteRange range, Use use) const {
  return find(range, {use, 0}, [](const Place& place) { return place.where == Where::kMemory; });
}

inline std::optional<int> AccessLog::under_way(int target) const {
  std::optional<int> found;
  for (const auto& [place, ranges] : places_) {
    if (!ranges.empty() && found != target) found = place.target;
  }
  return found;
}

// Adds the bytes that no entry covers yet. For all other bytes the earlier entry represents both accesses.
inline void AccessLog::add(const Place& place, ByteRange range, const Entry& entry) {
  Ranges& ranges = places_[place];
  std::uint64_t from = range.first;
  auto it = ranges.upper_bound(from);
  if (it != ranges.begin() && std::prev(it)->second.last > from) from = std::prev(it)->second.last;
  while (from < range.last) {
    const std::uint64_t to = it == ranges.end() ? range.last : std::min(range.last, it->first);
    if (to > from) {
      Entry part = entry;
      part.last = to;
      ranges.emplace_hint(it, from, part);
    }
    if (it == ranges.end()) return;
    from = std::max(from, it->second.last);
    ++it;
  }
}

inline void AccessLog::add_at_target(ByteRange range) {
  const Where where = operation_.use == Use::kFetch ? Where::kFetched : Where::kTarget;
  add({operation_.target, where, request()}, range, {0, kind_at_target(), operation_, number_});
}

inline void AccessLog::add_in_memory(ByteRange range, Use use) {
  add({operation_.target, Where::kMemory, request()}, range, {0, {use, 0}, operation_, number_});
}

inline void AccessLog::completed(int target) {
  std::erase_if(places_, [&](const auto& each) { return each.first.target == target; });
}

inline void AccessLog::completed_all() { places_.clear(); }

template <class Which>
void AccessLog::complete_locally(Which&& which) {
  for (auto& [place, ranges] : std::exchange(places_, {})) {
    if (!which(place)) {
      places_[place] = std::move(ranges);
      continue;
    }
    // An update without a result is not complete at the target.
    for (const auto& [first, entry] : ranges) {
      const bool updates = entry.operation.use == Use::kPut || entry.operation.use == Use::kAccumulate;
      if (place.where != Where::kMemory && updates && !entry.operation.answered)
        add({place.target, Where::kTarget, 0}, {first, entry.last}, entry);
    }
  }
}

inline void AccessLog::locally_completed(int target) {
  complete_locally([&](const Place& place) { return place.target == target; });
}

inline void AccessLog::notified() {
  std::erase_if(places_,
                [&](const auto& each) { return each.first.request == number_ && each.first.where != Where::kMemory; });
}

inline void AccessLog::request_completed(std::uint64_t number) {
  complete_locally([&](const Place& place) { return place.request == number; });
}

}  // namespace farside::epochs
