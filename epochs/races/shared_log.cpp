// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/races/shared_log.hpp"

#include <algorithm>

namespace farside::epochs {
namespace {

bool updates(Use use) { return use == Use::kPut || use == Use::kAccumulate; }

}  // namespace

const char* SharedLog::name(Counted call) {
  static constexpr const char* kNames[] = {"MPI_Put", "MPI_Get", "MPI_Accumulate",
                                           "MPI_Get_accumulate or MPI_Fetch_and_op", "MPI_Compare_and_swap"};
  return kNames[static_cast<std::size_t>(call)];
}

std::uint64_t SharedLog::mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::uint64_t SharedLog::hash(std::uint64_t hash, const void* bytes, std::size_t count) {
  const auto* at = static_cast<const unsigned char*>(bytes);
  for (; count >= 8; count -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = mix(hash, word);
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, at, count);
  hash = mix(mix(hash, rest), count);
  return hash == 0 ? 1 : hash;
}

std::size_t SharedLog::bytes(int ranks, std::uint32_t capacity) {
  return 64 + static_cast<std::size_t>(ranks) * (sizeof(Header) + sizeof(Entry) * capacity);
}

std::uint32_t SharedLog::capacity_for(int ranks) {
  const std::size_t most = (std::size_t{1} << 20) / sizeof(Entry) / static_cast<std::size_t>(ranks);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(most, 16, 256));
}

SharedLog::SharedLog(LogMemory& memory, int rank, int ranks, std::uint32_t capacity)
    : memory_(memory), rank_(rank), ranks_(ranks), capacity_(capacity) {}

bool SharedLog::counts(const Entry& entry, std::uint64_t fences, std::uint64_t exposures) {
  return entry.epoch == Epoch::kPassive || entry.tag == (entry.epoch == Epoch::kFence ? fences : exposures);
}

Result<SharedLog::Snapshot> SharedLog::look(int where) {
  std::vector<std::byte> raw(entry_at(0, 0));
  if (Status read = memory_.read(where, 0, raw.data(), raw.size()); !read) return read.error();
  Snapshot snapshot;
  std::memcpy(&snapshot.exposures, raw.data(), sizeof snapshot.exposures);
  snapshot.headers.resize(static_cast<std::size_t>(ranks_));
  std::memcpy(snapshot.headers.data(), raw.data() + header_at(0), sizeof(Header) * snapshot.headers.size());
  return snapshot;
}

Result<std::vector<SharedLog::Entry>> SharedLog::entries_of(int where, int origin, Header header) {
  std::vector<Entry> entries;
  for (int look = 0; look < kProbes; ++look) {
    if (look > 0) {
      if (Status read = memory_.read(where, header_at(origin), &header, sizeof header); !read) return read.error();
    }
    entries.clear();
    if (header.generation == 0) return entries;
    if (header.check != check_of(header) || header.used > capacity_) continue;
    if (header.used == 0) return entries;
    entries.resize(header.used);
    if (Status read = memory_.read(where, entry_at(origin, 0), entries.data(), sizeof(Entry) * entries.size()); !read) {
      return read.error();
    }
    const auto torn = std::erase_if(entries, [&](const Entry& entry) {
      return entry.generation != header.generation || entry.check != check_of(entry);
    });
    if (torn == 0) break;
  }
  return entries;
}

Status SharedLog::publish(int where, Mine& mine, std::size_t from) {
  Header& header = mine.header;
  const std::size_t used = std::min<std::size_t>(mine.entries.size(), capacity_);
  for (std::size_t i = from; i < used; ++i) {
    mine.entries[i].generation = header.generation;
    mine.entries[i].check = check_of(mine.entries[i]);
  }
  if (from < used) {
    Status written =
        memory_.write(where, entry_at(rank_, from), mine.entries.data() + from, sizeof(Entry) * (used - from));
    if (!written) return written;
  }
  header.used = static_cast<std::uint32_t>(used);
  header.incomplete = std::ranges::any_of(mine.entries, has_no_room) ? 1 : 0;
  header.check = check_of(header);
  return memory_.write(where, header_at(rank_), &header, sizeof header);
}

template <class Gone>
Status SharedLog::erase(int where, Mine& mine, Gone&& gone) {
  const bool cleared = std::ranges::any_of(mine.entries, [&](const Entry& entry) {
    return entry.epoch == Epoch::kPassive && updates(entry.use) && gone(entry);
  });
  if (std::erase_if(mine.entries, gone) == 0) return {};
  mine.last = 0;
  ++mine.header.generation;
  if (cleared) mine.header.cleared_in = fences_ + 1;
  return publish(where, mine, 0);
}

Result<std::optional<SharedLog::Found>> SharedLog::add(int where, const Access& access,
                                                       std::span<const StridedRun> runs) {
  Mine& mine = mine_[where];
  std::uint64_t tag = fences_;
  // The exposure cannot end before this access has completed.
  if (access.epoch == Epoch::kStarted || !mine.entries.empty()) {
    std::uint64_t exposures = 0;
    if (Status read = memory_.read(where, 0, &exposures, sizeof exposures); !read) return read.error();
    if (access.epoch == Epoch::kStarted) tag = exposures;
    Status erased = erase(where, mine, [&](const Entry& entry) { return !counts(entry, fences_, exposures); });
    if (!erased) return erased.error();
  }
  if (mine.entries.empty()) ++mine.header.generation;
  const std::size_t from = mine.entries.size();
  std::vector<Entry> all;
  for (const StridedRun& run : runs) {
    Entry& entry = all.emplace_back(Entry{access, run, tag});
    // An access is atomic only with respect to accesses of the same elements: of this type, and with the same first
    // bytes.
    const auto begins = access.element_bytes > 1 ? run.first % access.element_bytes : 0;
    entry.basic_type = access.basic_type * 256 + static_cast<std::int32_t>(begins);
  }
  mine.last = 0;
  if (from + all.size() <= capacity_) {
    mine.entries.insert(mine.entries.end(), all.begin(), all.end());
    mine.last = all.size();
  } else if (updates(access.use) && std::ranges::none_of(mine.entries, [&](const Entry& other) {
               return has_no_room(other) && other.tag == tag && other.target == access.target &&
                      other.epoch == access.epoch;
             })) {
    mine.entries.push_back({access, {}, tag});
  }
  if (Status written = publish(where, mine, from); !written) return written.error();
  Result<std::optional<Found>> found = conflict(where, all, false);
  if (!found || !found.value()) return found;
  if (Status gone = retract(where); !gone) return gone.error();
  return found;
}

Result<std::optional<SharedLog::Found>> SharedLog::conflict(int where, std::span<const Entry> accesses, bool with_own) {
  Result<Snapshot> snapshot = look(where);
  if (!snapshot) return snapshot.error();
  for (int origin = 0; origin < ranks_; ++origin) {
    if (origin == rank_ && !with_own) continue;
    Result<std::vector<Entry>> theirs =
        entries_of(where, origin, snapshot.value().headers[static_cast<std::size_t>(origin)]);
    if (!theirs) return theirs.error();
    for (const Entry& other : theirs.value()) {
      if (other.state == kDone || !counts(other, fences_, snapshot.value().exposures)) continue;
      for (const Entry& own : accesses) {
        const bool ops_differ = own.use == Use::kAccumulate && other.use == Use::kAccumulate &&
                                own.reduce_op != other.reduce_op && own.reduce_op != 0 && other.reduce_op != 0;
        const bool kinds_meet = may_overlap(kind(own), kind(other));
        if (kinds_meet && !ops_differ) continue;
        if (const auto range = overlap(own.run, other.run))
          return std::optional(Found{other, origin, *range, kinds_meet});
      }
    }
  }
  return std::optional<Found>();
}

Result<std::optional<SharedLog::Found>> SharedLog::look_from_outside(int where, const Access& access,
                                                                     std::span<const StridedRun> runs) {
  std::vector<Entry> all;
  for (const StridedRun& run : runs) {
    Entry& entry = all.emplace_back(Entry{access, run});
    entry.basic_type = -1;  // no entry's
    entry.reduce_op = 0;
  }
  return conflict(where, all, true);
}

Result<SharedLog::Memory> SharedLog::memory_of(int where) {
  Memory& memory = memories_[where];
  if (memory.bytes == 0) {
    if (Status read = memory_.read(where, kMemoryAt, &memory, sizeof memory); !read) return read.error();
  }
  return memory;
}

Status SharedLog::retract(int where) {
  Mine& mine = mine_[where];
  if (mine.last == 0) return {};
  mine.entries.resize(mine.entries.size() - mine.last);
  mine.last = 0;
  return publish(where, mine, mine.entries.size());
}

Status SharedLog::executed(int where, std::span<const Images> images) {
  Mine& mine = mine_[where];
  const std::size_t from = mine.entries.size() - mine.last;
  for (std::size_t i = 0; i < std::min(images.size(), mine.last); ++i) {
    mine.entries[from + i].images = images[i];
    mine.entries[from + i].state = kExecuted;
  }
  return publish(where, mine, from);
}

template <class Each>
Status SharedLog::for_each_log(Each&& each) {
  Status first;
  for (auto& [where, mine] : mine_) {
    if (Status done = each(where, mine); !done && first) first = std::move(done);
  }
  return first;
}

template <class Which>
Status SharedLog::erase_passive(Which&& which) {
  return for_each_log([&](int where, Mine& mine) {
    return erase(where, mine, [&](const Entry& entry) { return entry.epoch == Epoch::kPassive && which(entry); });
  });
}

Status SharedLog::complete(int target, bool locally) {
  return erase_passive([&](const Entry& entry) { return entry.target == target && (!locally || ends_locally(entry)); });
}

Status SharedLog::request_completed(std::uint64_t number) {
  return erase_passive([&](const Entry& entry) { return entry.number == number && ends_locally(entry); });
}

Status SharedLog::notified(std::uint64_t number) {
  return for_each_log([&](int where, Mine& mine) {
    return erase(where, mine, [&](const Entry& entry) { return entry.number == number && !entry.local; });
  });
}

Status SharedLog::completed_all() {
  return erase_passive([](const Entry&) { return true; });
}

Status SharedLog::start_completed() {
  return for_each_log([&](int where, Mine& mine) {
    bool over = false;
    for (Entry& entry : mine.entries) {
      // It stays in the log for changed().
      if (entry.epoch != Epoch::kStarted || entry.local || !ends_locally(entry)) continue;
      entry.state = kDone;
      over = true;
    }
    Status done = erase(where, mine, [](const Entry& entry) { return entry.epoch == Epoch::kStarted && entry.local; });
    return done && over ? publish(where, mine, 0) : std::move(done);
  });
}

Status SharedLog::exposure_ended() {
  ++exposures_;
  return memory_.write(rank_, 0, &exposures_, sizeof exposures_);
}

template <class Which>
bool SharedLog::any(Which&& which) const {
  return std::ranges::any_of(mine_, [&](const auto& mine) { return std::ranges::any_of(mine.second.entries, which); });
}

bool SharedLog::under_way(int target) const {
  return any([&](const Entry& entry) { return entry.epoch == Epoch::kPassive && entry.target == target; });
}
bool SharedLog::request_under_way(std::uint64_t number) const {
  return any([&](const Entry& entry) {
    return entry.epoch == Epoch::kPassive && entry.number == number && ends_locally(entry);
  });
}
bool SharedLog::under_way() const {
  return any([](const Entry& entry) { return entry.epoch == Epoch::kPassive; });
}
bool SharedLog::reads_started() const {
  return any(
      [](const Entry& entry) { return entry.epoch == Epoch::kStarted && entry.state != kDone && !updates(entry.use); });
}

Status SharedLog::image_kept(Epoch epoch) {
  Result<AllHere> here = entries_here(epoch);
  before_image_ = here ? std::move(here.value()) : AllHere();
  return here.status();
}

Result<SharedLog::AllHere> SharedLog::entries_here(Epoch epoch) {
  Result<Snapshot> snapshot = look(rank_);
  if (!snapshot) return snapshot.error();
  std::vector<Logged> found;
  for (int origin = 0; origin < ranks_; ++origin) {
    const Header& header = snapshot.value().headers[static_cast<std::size_t>(origin)];
    if (header.check != check_of(header) && header.generation != 0) return AllHere();
    if (header.incomplete != 0 || header.cleared_in == fences_ + 1) return AllHere();
    Result<std::vector<Entry>> theirs = entries_of(rank_, origin, header);
    if (!theirs) return theirs.error();
    for (const Entry& entry : theirs.value()) {
      if (counts(entry, fences_, exposures_) && (entry.epoch == epoch || updates(entry.use)))
        found.push_back({entry, origin});
    }
  }
  return AllHere(std::move(found));
}

Result<std::vector<SharedLog::Found>> SharedLog::unexplained(std::span<const Logged> suspects, Epoch epoch) {
  Result<AllHere> now = entries_here(epoch);
  if (!now) return now.error();
  std::vector<Found> changes;
  if (!now.value()) return changes;
  for (const Logged& suspect : suspects) {
    bool still_there = false;
    bool explained = false;
    for (const Logged& other : *now.value()) {
      const bool same =
          other.origin == suspect.origin && other.number == suspect.number && other.run.first == suspect.run.first;
      still_there = still_there || same;
      explained = explained || (!same && updates(other.use) && overlap(other.run, suspect.run));
    }
    if (!still_there || explained) continue;
    changes.push_back({suspect, suspect.origin, {suspect.run.first, suspect.run.block(suspect.run.count - 1).last}});
  }
  return changes;
}

}  // namespace farside::epochs
