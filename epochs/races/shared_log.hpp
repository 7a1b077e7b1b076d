// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict, the target's view. Each rank keeps, in memory that all ranks of the window reach, a log of
// the accesses to its window that are not complete. An origin writes its access into the log of the target first, and
// then reads the accesses of others. If neither of two conflicting accesses can be complete before the other begins,
// at least one of the two origins sees the other access.
//
// An entry counts as long as MPI does not order the access before later ones (MPI 4.0 sections 12.5 and 12.7), so
// that no correct program is accused:
//
//   fence      until the fence that closes the epoch; entries carry the number of the fence
//   PSCW       an update without result until the target's wait, as entries carry the number of the exposure; other
//              accesses until the origin's complete
//   notified   until the notification
//   passive    until the origin's flush, unlock, or flush_local (accesses with a result) removes the entry
//
// Lock-free, with one writer per word: only rank r writes the block of rank r in each log. Readers verify check sums,
// and read a torn block again.
//
//   log:     | exposures ended 8, memory 16, to 64 | header of rank 0, 1, ... | entries of rank 0, 1, ... |
//   block:   a header, and `capacity` entries of which the first `used` count
//
// For debugging, and slow. Not thread-safe; errors are those of LogMemory. Cost of add(): up to three writes and
// reads of the target's log, and one read for each other origin that has entries there. Memory per rank: 64 bytes,
// and for each rank of the window 32 and 104 per entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "epochs/races/strided_run.hpp"
#include "transport/base/result.hpp"
#include "transport/base/statistics.hpp"

namespace farside::epochs {

// The logs of all ranks. Both calls return when the transfer is complete.
class LogMemory {
 public:
  virtual Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) = 0;
  virtual Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) = 0;

 protected:
  ~LogMemory() = default;
};

class SharedLog {
 public:
  static const char* name(Counted call);  // of an operation
  enum class Epoch : std::uint8_t { kFence, kStarted, kPassive };

  struct Access {
    Counted call = Counted::kPut;
    Use use = Use::kPut;
    Epoch epoch = Epoch::kPassive;
    bool local = false;               // the bytes are a buffer of the operation that lies in the origin's own window
    std::int32_t basic_type = 0;      // of atomic uses
    std::uint16_t element_bytes = 0;  // extent of the elements: atomic uses must begin at the same bytes of an element
    std::uint16_t reduce_op = 0;      // of atomic updates: those of two origins conflict if theirs differ; 0: with none
    std::int32_t target = 0;          // of the operation; completing the operations to this target completes the access
    std::uint64_t number = 0;         // of the operation, at its origin
  };
  // An access of another rank, and the bytes of the window of which this is about: where it conflicts with one of this
  // rank, or which have changed since, although the log contains no other update that explains the change.
  struct Found : Access {
    int origin = -1;
    ByteRange range{};
    bool only_ops_differ = false;
  };
  // Hashes of the bytes of a run, in the order of blocks, before and after the access; 0 if unknown.
  struct Images {
    std::uint64_t before = 0;
    std::uint64_t after = 0;
  };
  struct Memory {  // of a rank's window, as its process addresses it
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };

  // Bytes of the log of one rank. A new log must be zero.
  static std::size_t bytes(int ranks, std::uint32_t capacity);
  // Entries per origin: 16 to 256, for about 1 MiB per rank. Each access reads the entries of all other origins.
  static std::uint32_t capacity_for(int ranks);

  SharedLog(LogMemory& memory, int rank, int ranks, std::uint32_t capacity);

  // Enters the access to `runs` of the window of `where`, and looks for a conflict with other ranks. With a conflict
  // the entry is taken out again.
  Result<std::optional<Found>> add(int where, const Access& access, std::span<const StridedRun> runs);
  // Looks for a conflict, also of this rank, with an access to `runs` by way of another window, in which even atomic
  // updates conflict (MPI 4.0 section 12.7).
  Result<std::optional<Found>> look_from_outside(int where, const Access& access, std::span<const StridedRun> runs);
  // describe() writes where this rank's memory lies into its own log, before any rank reads the log. memory_of() reads
  // the entry of a rank.
  static void describe(std::byte* log, const Memory& memory) { std::memcpy(log + kMemoryAt, &memory, sizeof memory); }
  Result<Memory> memory_of(int where);
  // Takes out the entries of the last add() to `where`.
  Status retract(int where);
  // Records what the last add() to `where` found and left there, for each run.
  Status executed(int where, std::span<const Images> images);

  // The passive operations to the target are complete, or complete at the origin, which takes out local buffers and
  // accesses whose result is here.
  Status completed(int target) { return complete(target, false); }
  Status locally_completed(int target) { return complete(target, true); }
  // The passive operation with this number is complete at the origin, by its request.
  Status request_completed(std::uint64_t number);
  // The operation with this number has told its target that it is complete. An epoch does not end that.
  Status notified(std::uint64_t number);
  Status completed_all();
  // The operations of the epoch that MPI_Win_complete ends are complete at the origin.
  Status start_completed();
  // All ranks have entered the fence.
  void fence_passed() { ++fences_; }
  // At the target, in MPI_Win_wait.
  Status exposure_ended();
  // Whether completed(), request_completed(), completed_all() or start_completed() would take out entries.
  bool under_way(int target) const;
  bool request_under_way(std::uint64_t number) const;
  bool under_way() const;
  bool reads_started() const;

  // This rank has copied its window. The copy may show accesses of this epoch that are in the log now.
  Status image_kept(Epoch epoch);
  // The accesses to this rank's own window whose bytes have changed since; to be called before the fence or wait that
  // ends the epoch. `image(run)` returns the hash of the present bytes.
  template <class Image>
  Result<std::vector<Found>> changed_after(Epoch epoch, Image&& image) {
    return changed(epoch, [&](const Logged& each) {
      return each.state == kExecuted && each.images.after != 0 && image(each.run) != each.images.after;
    });
  }
  // The same for bytes that had changed between image_kept() and the access. `image(run)` returns the hash of those
  // kept, 0 if unknown.
  template <class Image>
  Result<std::vector<Found>> changed_before(Epoch epoch, Image&& image) {
    return changed(epoch, [&](const Logged& each) {
      if (each.state == kIssued || each.images.before == 0 || !before_image_) return false;
      const auto same = [&](const Logged& early) { return early.origin == each.origin && early.number == each.number; };
      const std::uint64_t kept = std::ranges::any_of(*before_image_, same) ? 0 : image(each.run);
      return kept != 0 && kept != each.images.before;
    });
  }

  // Continues a hash.
  static std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
  static std::uint64_t hash(std::uint64_t hash, const void* bytes, std::size_t count);

 private:
  // Reads of a block that changes meanwhile, at most.
  static constexpr int kProbes = 8;
  static constexpr std::uint64_t kMemoryAt = 8;
  enum State : std::uint64_t { kIssued, kExecuted, kDone };  // kDone: changed() still needs it
  struct Header {
    std::uint64_t generation = 0;  // of the entries that count; 0: nothing was ever written
    std::uint32_t used = 0;
    std::uint32_t incomplete = 0;  // 1: some updates that count found no room
    std::uint64_t cleared_in = 0;  // 1 + the number of fences when passive updates were last taken out
    std::uint64_t check = 0;
  };
  // `basic_type`: tells elements apart. An update that found no room, as it stays at the origin, has no bytes.
  struct Entry : Access {
    StridedRun run;
    std::uint64_t tag = 0;  // number of fences before the access, or of exposures ended
    State state = kIssued;
    Images images{};
    std::uint64_t generation = 0;
    std::uint64_t check = 0;
  };
  static_assert(sizeof(Entry) == 104 && std::has_unique_object_representations_v<Entry>);
  struct Logged : Entry {
    int origin;
  };
  // The block of this rank in the log of another. Of the entries, at most one for each epoch and target found no room.
  struct Mine {
    Header header;
    std::vector<Entry> entries;
    std::size_t last = 0;  // entries of the last add()
  };
  struct Snapshot {
    std::uint64_t exposures = 0;
    std::vector<Header> headers;
  };

  std::uint64_t header_at(int origin) const { return 64 + sizeof(Header) * static_cast<std::uint64_t>(origin); }
  std::uint64_t entry_at(int origin, std::size_t index) const {
    return header_at(ranks_) + sizeof(Entry) * (static_cast<std::uint64_t>(origin) * capacity_ + index);
  }
  template <class Part>
  static std::uint64_t check_of(const Part& part) {
    return hash(17, &part, sizeof part - sizeof part.check);
  }
  static AccessKind kind(const Entry& entry) { return {entry.use, entry.basic_type}; }
  static bool has_no_room(const Entry& entry) { return entry.run.bytes == 0; }
  // Whether the access may still be under way after so many fences and exposures.
  static bool counts(const Entry& entry, std::uint64_t fences, std::uint64_t exposures);

  Result<Snapshot> look(int where);
  // The first conflict of these accesses with others in the log; of this rank's own only `with_own`.
  Result<std::optional<Found>> conflict(int where, std::span<const Entry> accesses, bool with_own);
  Result<std::vector<Entry>> entries_of(int where, int origin, Header header);
  Status publish(int where, Mine& mine, std::size_t from);
  // Takes out the entries for which `gone` is true. If there were any, a new generation begins.
  template <class Gone>
  Status erase(int where, Mine& mine, Gone&& gone);
  Status complete(int target, bool locally);
  // Calls each(where, block) for all blocks of this rank, and returns the first error.
  template <class Each>
  Status for_each_log(Each&& each);
  template <class Which>
  Status erase_passive(Which&& which);
  // Whether local completion takes the entry out: an operation whose result is here is complete at the target.
  static bool ends_locally(const Entry& entry) {
    return entry.local || (entry.call != Counted::kPut && entry.call != Counted::kAccumulate);
  }
  template <class Which>
  bool any(Which&& which) const;
  // The accesses in this epoch, and the updates in any; none if the log does not hold all updates.
  using AllHere = std::optional<std::vector<Logged>>;
  Result<AllHere> entries_here(Epoch epoch);
  template <class Suspected>
  Result<std::vector<Found>> changed(Epoch epoch, Suspected&& suspected) {
    Result<AllHere> here = entries_here(epoch);
    if (!here) return here.error();
    if (!here.value()) return std::vector<Found>();
    std::erase_if(*here.value(), [&](const Logged& each) { return each.epoch != epoch || !suspected(each); });
    if (here.value()->empty()) return std::vector<Found>();
    // Every update that affected the bytes just read is in the log by now.
    return unexplained(*here.value(), epoch);
  }
  Result<std::vector<Found>> unexplained(std::span<const Logged> suspects, Epoch epoch);

  LogMemory& memory_;
  int rank_;
  int ranks_;
  std::uint32_t capacity_;
  std::uint64_t fences_ = 0;
  std::uint64_t exposures_ = 0;
  std::map<int, Mine> mine_;
  std::map<int, Memory> memories_;
  AllHere before_image_;
};

}  // namespace farside::epochs
