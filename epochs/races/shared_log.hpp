// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict, the target's view: each rank keeps, in memory that all ranks of the window reach, a log of the
// accesses to its window that are not complete there, by whomever. Who is about to access a target writes into its log
// first, then looks what others have written: of two accesses that conflict, and neither of which can be over before
// the other begins, at least one sees the other. Pure but for the memory that it is given. For debugging, and slow.
//
// What counts as not over (MPI 4.0 sections 12.5 and 12.7), and so never accuses a right program:
//   fence      until the fence that closes the epoch, whatever happens in between: entries carry the number of the
//              fence
//   PSCW       an update until the target's wait: entries carry the number of the exposure; a read until the complete
//   passive    until the flush, flush_local (reads) or unlock that completes it at its origin takes it out
//
// Lock-free, with one writer per word: rank r alone writes the block of r in each log. A reader knows by check sums
// whether what it reads is whole, and reads again if not.
//
//   log:     | exposures ended 8, to 64 | header of rank 0, 1, ... | entries of rank 0 | entries of rank 1 | ...
//   block:   a header, and `capacity` entries of which the first `used` count
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "epochs/races/access_kind.hpp"
#include "epochs/races/strided_run.hpp"
#include "transport/base/result.hpp"

namespace farside::epochs {

// The logs of all ranks. Both calls return when all of it has happened.
class LogMemory {
 public:
  virtual Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) = 0;
  virtual Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) = 0;

 protected:
  ~LogMemory() = default;
};

class SharedLog {
 public:
  enum class Call : std::uint8_t { kPut, kGet, kAccumulate, kGetAccumulate, kCompareAndSwap };
  static const char* name(Call call);
  enum class Epoch : std::uint8_t { kFence, kStarted, kPassive };

  struct Access {
    Call call;
    Use use;
    int basic_type;             // of atomic uses
    std::uint32_t element_bytes;  // their extent: two that meet must begin at the same bytes
    Epoch epoch;
    int target;                 // of the operation: what completes its operations completes this
    std::uint64_t number;       // of the operation, at its origin
    bool local = false;         // of the origin's own window: a buffer of the operation lies there
  };
  struct Conflict {
    Call call;
    Epoch epoch;
    int origin;
    std::uint64_t number;
    bool local;
    ByteRange range;            // in the window where they meet
  };
  // An access whose bytes are no longer what it left, though nobody else has updated them by this window.
  struct Change {
    Call call;
    int origin;
    std::uint64_t number;
    ByteRange range;
  };

  // So many bytes per rank; the log begins as zeros.
  static std::size_t bytes(int ranks, std::uint32_t capacity);
  // About 1 MiB per rank, at least 16 entries for each origin, at most 256: each access reads those of the others.
  static std::uint32_t capacity_for(int ranks);

  SharedLog(LogMemory& memory, int rank, int ranks, std::uint32_t capacity);

  // Writes the access to `runs` of the window of `where`, and looks for others'. With a conflict it is taken out again.
  Result<std::optional<Conflict>> add(int where, const Access& access, std::span<const StridedRun> runs);
  // Takes out what the last add() to `where` wrote.
  Status retract(int where);
  // What the last add() to `where` has left there: a hash for each run (0: unknown), of bytes() in the order of blocks.
  Status executed(int where, std::span<const std::uint64_t> images);

  // Passive operations to the target are complete; at the origin only: reads, and local buffers.
  Status completed(int target) { return complete(target, false); }
  Status locally_completed(int target) { return complete(target, true); }
  // The passive operation with this number is complete at the origin, by its request: the same of it alone.
  Status request_completed(std::uint64_t number);
  Status completed_all();
  // The operations of the epoch that MPI_Win_complete ends are complete at the origin.
  Status start_completed();
  // All ranks have come to the fence.
  void fence_passed() { ++fences_; }
  // By MPI_Win_wait, at the target.
  Status exposure_ended();
  // Whether there is anything that a flush or unlock of the target, of all, or MPI_Win_complete would take out now.
  bool under_way(int target) const;
  // Whether request_completed() would take something out.
  bool request_under_way(std::uint64_t number) const;
  bool under_way() const;
  bool reads_started() const;

  // Of this rank's own window, before the fence or wait that ends the epoch: accesses of it whose bytes have changed.
  // `image(run)` is the hash of what the window holds there now.
  template <class Image>
  Result<std::vector<Change>> changed(Epoch epoch, Image&& image) {
    Result<std::vector<Found>> before = entries_here(epoch);
    if (!before) return before.error();
    std::vector<Found> suspects;
    for (const Found& found : before.value()) {
      if (found.entry.state == kExecuted && found.entry.image != 0 && image(found.entry.run) != found.entry.image) {
        suspects.push_back(found);
      }
    }
    if (suspects.empty()) return std::vector<Change>();
    // Whatever had an effect on what was just read is in the log by now.
    return unexplained(suspects, epoch);
  }

  // A hash that goes on from another.
  static std::uint64_t mix(std::uint64_t hash, std::uint64_t value);
  static std::uint64_t hash(std::uint64_t hash, const void* bytes, std::size_t count);

 private:
  // How often a block is read that changes meanwhile.
  static constexpr int kProbes = 8;
  enum State : std::uint8_t { kIssued, kExecuted, kOver };  // kOver: only updates, for changed()
  struct Header {
    std::uint64_t generation = 0;  // of the entries that count; 0: nothing was ever written
    std::uint32_t used = 0;
    std::uint32_t incomplete = 0;  // there was no room for some
    std::uint64_t cleared_in = 0;  // 1 + the fences before passive updates were last taken out
    std::uint64_t check = 0;
  };
  struct Entry {
    StridedRun run;
    std::uint64_t number = 0;
    std::uint64_t tag = 0;         // fences before it, or exposures ended
    std::int32_t element = 0;
    std::int32_t target = 0;
    Use use = Use::kPut;
    Call call = Call::kPut;
    Epoch epoch = Epoch::kPassive;
    State state = kIssued;
    std::uint32_t local = 0;
    std::uint64_t image = 0;
    std::uint64_t generation = 0;
    std::uint64_t check = 0;
  };
  // What this rank has in the log of another.
  struct Mine {
    Header header;
    std::vector<Entry> entries;
    std::size_t last = 0;          // how many the last add() wrote
  };
  struct Found {
    int origin;
    Entry entry;
  };
  struct Snapshot {
    std::uint64_t exposures = 0;
    std::vector<Header> headers;
  };

  std::uint64_t header_at(int origin) const { return 64 + sizeof(Header) * static_cast<std::uint64_t>(origin); }
  std::uint64_t entry_at(int origin, std::size_t index) const {
    return header_at(ranks_) + sizeof(Entry) * (static_cast<std::uint64_t>(origin) * capacity_ + index);
  }
  static std::uint64_t check_of(const Header& header);
  static std::uint64_t check_of(const Entry& entry);
  AccessKind kind(const Entry& entry) const { return {entry.use, entry.element}; }
  // May still be under way for somebody after so many fences and exposures?
  static bool counts(const Entry& entry, std::uint64_t fences, std::uint64_t exposures);

  Result<Snapshot> look(int where);
  Result<std::vector<Entry>> entries_of(int where, int origin, Header header);
  Status publish(int where, Mine& mine, std::size_t from);
  // Takes out those that `gone` says; a new generation if there were any.
  template <class Gone>
  Status erase(int where, Mine& mine, Gone&& gone);
  Status complete(int target, bool locally);
  template <class Which>
  Status erase_everywhere(Which&& which);
  // Whether local completion of the operation takes the entry out: a fetch that is back has been done at the target.
  static bool ends_locally(const Entry& entry) {
    return entry.local != 0 || (entry.call != Call::kPut && entry.call != Call::kAccumulate);
  }
  template <class Which>
  bool any(Which&& which) const;
  Result<std::vector<Found>> entries_here(Epoch epoch);
  Result<std::vector<Change>> unexplained(std::span<const Found> suspects, Epoch epoch);

  LogMemory& memory_;
  int rank_;
  int ranks_;
  std::uint32_t capacity_;
  std::uint64_t fences_ = 0;
  std::uint64_t exposures_ = 0;
  std::map<int, Mine> mine_;
};

}  // namespace farside::epochs
