// SPDX-License-Identifier: BSD-3-Clause
// The words by which an on-node peer on the node reads a rank's table of attached regions, at their offsets behind the
// control words of the caller:
//
//     0  version     odd while the table changes
//     8  address     of the table in its process
//    16  count       its regions
//    64  stale       how often a peer has told this rank that what it read there is gone; only grows
//   128  readers[]   one bit per peer: has read the table since it was last told
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace farside {

struct RegionWords {
  static constexpr std::size_t kVersion = 0;
  static constexpr std::size_t kAddress = 8;
  static constexpr std::size_t kCount = 16;
  static constexpr std::size_t kStale = 64;
  static constexpr std::size_t kReaders = 128;
  static constexpr std::size_t bytes(int ranks) { return kReaders + (static_cast<std::size_t>(ranks) + 63) / 64 * 8; }

  // Of this rank, or of one whose segment is mapped.
  std::byte* base = nullptr;
  std::atomic_ref<std::uint64_t> word(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base + offset));
  }
  // Where the table is.
  struct Place {
    std::uint64_t address = 0;
    std::uint64_t count = 0;
  };
  // For the owner, one thread at a time: `work` changes the table and returns where it is then. An on-node peer that
  // reads it meanwhile sees an odd version, or another one afterwards, and reads again.
  template <class Work>
  void change(Work&& work) const {
    word(kVersion).fetch_add(1, std::memory_order_seq_cst);
    // Nothing of the change is seen before the odd version: a read-modify-write does not order that by itself (on x86
    // it does, and the fence is no instruction).
    std::atomic_thread_fence(std::memory_order_release);
    const Place place = work();
    word(kAddress).store(place.address, std::memory_order_relaxed);
    word(kCount).store(place.count, std::memory_order_relaxed);
    word(kVersion).fetch_add(1, std::memory_order_seq_cst);
  }
  // For an on-node peer: calls copy(place), and returns the place if the table did not change meanwhile; what was
  // copied is of no use if it did.
  template <class Copy>
  std::optional<Place> read(Copy&& copy) const {
    const std::uint64_t version = word(kVersion).load(std::memory_order_seq_cst);
    if (version % 2 != 0) return {};
    const Place place{word(kAddress).load(std::memory_order_relaxed), word(kCount).load(std::memory_order_relaxed)};
    copy(place);
    // The table was read before the version is looked at again.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (word(kVersion).load(std::memory_order_relaxed) != version) return {};
    return place;
  }
  // Sequentially consistent: either the reader sees the table as it is after a detach, or the detach sees the reader.
  void note_reader(int rank) const {
    word(kReaders + static_cast<std::size_t>(rank) / 64 * 8)
        .fetch_or(std::uint64_t{1} << (rank % 64), std::memory_order_seq_cst);
  }
  // The bits of 64 ranks from `first` on; no longer noted then.
  std::uint64_t take_readers(int first) const {
    return word(kReaders + static_cast<std::size_t>(first) / 8).exchange(0, std::memory_order_seq_cst);
  }
};

}  // namespace farside
