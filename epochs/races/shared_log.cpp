// SPDX-License-Identifier: BSD-3-Clause
#include "epochs/races/shared_log.hpp"

#include <algorithm>
#include <cstring>

namespace farside::epochs {
namespace {

bool updates(Use use) { return use == Use::kPut || use == Use::kAccumulate; }

}  // namespace

const char* SharedLog::name(Call call) {
  switch (call) {
    case Call::kPut: return "MPI_Put";
    case Call::kGet: return "MPI_Get";
    case Call::kAccumulate: return "MPI_Accumulate";
    case Call::kGetAccumulate: return "MPI_Get_accumulate or MPI_Fetch_and_op";
    case Call::kCompareAndSwap: return "MPI_Compare_and_swap";
  }
  return "an operation";
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

std::uint64_t SharedLog::check_of(const Header& header) {
  std::uint64_t sum = mix(mix(17, header.generation), header.used);
  return mix(mix(sum, header.incomplete), header.cleared_in);
}

std::uint64_t SharedLog::check_of(const Entry& entry) {
  std::uint64_t sum = 19;
  for (const std::uint64_t word :
       {entry.run.first, entry.run.bytes, entry.run.stride, entry.run.count, entry.number, entry.tag,
        static_cast<std::uint64_t>(entry.element), static_cast<std::uint64_t>(entry.target),
        static_cast<std::uint64_t>(entry.use), static_cast<std::uint64_t>(entry.call),
        static_cast<std::uint64_t>(entry.epoch), static_cast<std::uint64_t>(entry.state),
        static_cast<std::uint64_t>(entry.local), entry.image, entry.generation}) {
    sum = mix(sum, word);
  }
  return sum;
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
  switch (entry.epoch) {
    case Epoch::kFence: return entry.tag == fences;
    case Epoch::kStarted: return entry.tag == exposures;
    case Epoch::kPassive: return true;
  }
  return false;
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
  for (std::size_t i = from; i < mine.entries.size(); ++i) {
    mine.entries[i].generation = header.generation;
    mine.entries[i].check = check_of(mine.entries[i]);
  }
  if (from < mine.entries.size()) {
    Status written = memory_.write(where, entry_at(rank_, from), mine.entries.data() + from,
                                   sizeof(Entry) * (mine.entries.size() - from));
    if (!written) return written;
  }
  header.used = static_cast<std::uint32_t>(mine.entries.size());
  header.check = check_of(header);
  return memory_.write(where, header_at(rank_), &header, sizeof header);
}

template <class Gone>
Status SharedLog::erase(int where, Mine& mine, Gone&& gone) {
  const auto clears = [&](const Entry& entry) {
    return entry.epoch == Epoch::kPassive && updates(entry.use) && gone(entry);
  };
  const bool cleared = std::any_of(mine.entries.begin(), mine.entries.end(), clears) ||
                       std::any_of(mine.unlogged.begin(), mine.unlogged.end(), clears);
  if (std::erase_if(mine.entries, gone) + std::erase_if(mine.unlogged, gone) == 0) return {};
  mine.last = 0;
  mine.header.incomplete = mine.unlogged.empty() ? 0 : 1;
  ++mine.header.generation;
  if (cleared) mine.header.cleared_in = fences_ + 1;
  return publish(where, mine, 0);
}

void SharedLog::note_unlogged(Mine& mine, const Access& access, std::uint64_t tag) {
  mine.header.incomplete = 1;
  Entry entry;
  entry.tag = tag;
  entry.target = access.target;
  entry.epoch = access.epoch;
  const auto is_same = [&](const Entry& other) {
    return other.tag == entry.tag && other.target == entry.target && other.epoch == entry.epoch;
  };
  if (std::none_of(mine.unlogged.begin(), mine.unlogged.end(), is_same)) mine.unlogged.push_back(entry);
}

Result<std::optional<SharedLog::Conflict>> SharedLog::add(int where, const Access& access,
                                                          std::span<const StridedRun> runs) {
  Mine& mine = mine_[where];
  std::uint64_t tag = fences_;
  // The exposure cannot end before this access has completed.
  if (access.epoch == Epoch::kStarted || !mine.entries.empty() || !mine.unlogged.empty()) {
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
    Entry entry;
    entry.run = run;
    entry.number = access.number;
    entry.tag = tag;
    // An access is atomic only with respect to accesses of the same elements: of this type, and with the same first
    // bytes.
    const auto begins = access.element_bytes > 1 ? run.first % access.element_bytes : 0;
    entry.element = access.basic_type * 256 + static_cast<std::int32_t>(begins);
    entry.target = access.target;
    entry.use = access.use;
    entry.call = access.call;
    entry.epoch = access.epoch;
    entry.local = access.local ? 1 : 0;
    all.push_back(entry);
  }
  if (from + all.size() <= capacity_) {
    mine.entries.insert(mine.entries.end(), all.begin(), all.end());
    mine.last = all.size();
  } else {
    if (updates(access.use)) note_unlogged(mine, access, tag);
    mine.last = 0;
  }
  if (Status written = publish(where, mine, from); !written) return written.error();

  Result<Snapshot> snapshot = look(where);
  if (!snapshot) return snapshot.error();
  for (int origin = 0; origin < ranks_; ++origin) {
    if (origin == rank_) continue;
    Result<std::vector<Entry>> theirs =
        entries_of(where, origin, snapshot.value().headers[static_cast<std::size_t>(origin)]);
    if (!theirs) return theirs.error();
    for (const Entry& other : theirs.value()) {
      if (other.state == kDone || !counts(other, fences_, snapshot.value().exposures)) continue;
      for (const Entry& own : all) {
        if (may_conflict(kind(own), kind(other))) continue;
        const auto range = overlap(own.run, other.run);
        if (!range) continue;
        if (Status gone = retract(where); !gone) return gone.error();
        return std::optional(Conflict{other.call, other.epoch, origin, other.number, other.local != 0, *range});
      }
    }
  }
  return std::optional<Conflict>();
}

Status SharedLog::retract(int where) {
  Mine& mine = mine_[where];
  if (mine.last == 0) return {};
  mine.entries.resize(mine.entries.size() - mine.last);
  mine.last = 0;
  return publish(where, mine, mine.entries.size());
}

Status SharedLog::executed(int where, std::span<const std::uint64_t> images) {
  Mine& mine = mine_[where];
  const std::size_t from = mine.entries.size() - mine.last;
  for (std::size_t i = 0; i < std::min(images.size(), mine.last); ++i) {
    mine.entries[from + i].image = images[i];
    mine.entries[from + i].state = kExecuted;
  }
  return publish(where, mine, from);
}

template <class Which>
Status SharedLog::erase_everywhere(Which&& which) {
  Status first;
  for (auto& [where, mine] : mine_) {
    Status erased =
        erase(where, mine, [&](const Entry& entry) { return entry.epoch == Epoch::kPassive && which(entry); });
    if (!erased && first) first = std::move(erased);
  }
  return first;
}

Status SharedLog::complete(int target, bool locally) {
  return erase_everywhere(
      [&](const Entry& entry) { return entry.target == target && (!locally || ends_locally(entry)); });
}

Status SharedLog::request_completed(std::uint64_t number) {
  return erase_everywhere([&](const Entry& entry) { return entry.number == number && ends_locally(entry); });
}

Status SharedLog::completed_all() {
  return erase_everywhere([](const Entry&) { return true; });
}

Status SharedLog::start_completed() {
  Status first;
  for (auto& [where, mine] : mine_) {
    bool over = false;
    for (Entry& entry : mine.entries) {
      if (entry.epoch != Epoch::kStarted || entry.call == Call::kPut || entry.call == Call::kAccumulate) continue;
      // Updates stay in the log for changed().
      if (entry.local != 0 || !updates(entry.use)) continue;
      entry.state = kDone;
      over = true;
    }
    Status done = erase(where, mine, [](const Entry& entry) {
      return entry.epoch == Epoch::kStarted && (entry.local != 0 || !updates(entry.use));
    });
    if (done && over) done = publish(where, mine, 0);
    if (!done && first) first = std::move(done);
  }
  return first;
}

Status SharedLog::exposure_ended() {
  ++exposures_;
  return memory_.write(rank_, 0, &exposures_, sizeof exposures_);
}

template <class Which>
bool SharedLog::any(Which&& which) const {
  return std::any_of(mine_.begin(), mine_.end(), [&](const auto& mine) {
    return std::any_of(mine.second.entries.begin(), mine.second.entries.end(), which) ||
           std::any_of(mine.second.unlogged.begin(), mine.second.unlogged.end(), which);
  });
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
  return any([](const Entry& entry) { return entry.epoch == Epoch::kStarted && !updates(entry.use); });
}

Result<std::vector<SharedLog::Found>> SharedLog::entries_here(Epoch epoch) {
  Result<Snapshot> snapshot = look(rank_);
  if (!snapshot) return snapshot.error();
  std::vector<Found> found;
  for (int origin = 0; origin < ranks_; ++origin) {
    const Header& header = snapshot.value().headers[static_cast<std::size_t>(origin)];
    // The log does not hold all updates.
    if (header.check != check_of(header) && header.generation != 0) return std::vector<Found>();
    if (header.incomplete != 0 || header.cleared_in == fences_ + 1) return std::vector<Found>();
    Result<std::vector<Entry>> theirs = entries_of(rank_, origin, header);
    if (!theirs) return theirs.error();
    for (const Entry& entry : theirs.value()) {
      if (counts(entry, fences_, exposures_)) found.push_back({origin, entry});
    }
  }
  std::erase_if(found, [&](const Found& f) { return f.entry.epoch != epoch && !updates(f.entry.use); });
  return found;
}

Result<std::vector<SharedLog::Change>> SharedLog::unexplained(std::span<const Found> suspects, Epoch epoch) {
  Result<std::vector<Found>> now = entries_here(epoch);
  if (!now) return now.error();
  std::vector<Change> changes;
  for (const Found& suspect : suspects) {
    bool still_there = false;
    bool explained = false;
    for (const Found& other : now.value()) {
      const bool same = other.origin == suspect.origin && other.entry.number == suspect.entry.number &&
                        other.entry.run.first == suspect.entry.run.first;
      still_there = still_there || same;
      explained = explained || (!same && updates(other.entry.use) && overlap(other.entry.run, suspect.entry.run));
    }
    if (suspect.entry.epoch != epoch || !still_there || explained) continue;
    const StridedRun& run = suspect.entry.run;
    changes.push_back(
        {suspect.entry.call, suspect.origin, suspect.entry.number, {run.first, run.block(run.count - 1).last}});
  }
  return changes;
}

}  // namespace farside::epochs
