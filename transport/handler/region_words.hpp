// SPDX-License-Identifier: BSD-3-Clause
// The words of a rank's segment by which on-node peers read its table of attached regions. Offsets in bytes:
//
//     0  version     odd while the table changes
//     8  address     of the long list of the table (attached_regions.hpp) in the process of its rank
//    16  count       of the regions in it
//    24  address     of the short list
//    32  count
//    64  stale       counts the notifications from peers that have detached a region this rank may know of
//   128  readers[]   one bit per peer: set if the peer has read the table since the last notification
//
// Thread safety: any, except change(). Memory: 128 bytes and one bit per rank.
#pragma once

#include <array>
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

  // In the segment of this rank or of an on-node peer.
  std::byte* base = nullptr;
  std::atomic_ref<std::uint64_t> word(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(base + offset));
  }
  // The location of a list.
  struct Place {
    std::uint64_t address = 0;
    std::uint64_t count = 0;
  };
  using Places = std::array<Place, 2>;
  // For the owner, one thread at a time. `work` changes the table, returns its new locations, and does not throw. An
  // on-node peer that reads the table meanwhile finds an odd version or a changed one, and reads again.
  template <class Work>
  void change(Work&& work) const {
    word(kVersion).fetch_add(1, std::memory_order_seq_cst);
    // Makes the odd version visible before any part of the change. A read-modify-write alone does not order the stores
    // that follow it (on x86 it does, and this fence is no instruction).
    std::atomic_thread_fence(std::memory_order_release);
    const Places places = work();
    for (std::size_t list = 0; list < places.size(); ++list) {
      word(kAddress + list * sizeof(Place)).store(places[list].address, std::memory_order_relaxed);
      word(kCount + list * sizeof(Place)).store(places[list].count, std::memory_order_relaxed);
    }
    word(kVersion).fetch_add(1, std::memory_order_seq_cst);
  }
  // For an on-node peer. Calls copy(places), and returns the places if the table did not change meanwhile. Otherwise
  // the copy is invalid.
  template <class Copy>
  std::optional<Places> read(Copy&& copy) const {
    const std::uint64_t version = word(kVersion).load(std::memory_order_seq_cst);
    if (version % 2 != 0) return {};
    Places places;
    for (std::size_t list = 0; list < places.size(); ++list) {
      places[list] = {word(kAddress + list * sizeof(Place)).load(std::memory_order_relaxed),
                      word(kCount + list * sizeof(Place)).load(std::memory_order_relaxed)};
    }
    copy(places);
    // Orders the reads of the table before the second load of the version.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (word(kVersion).load(std::memory_order_relaxed) != version) return {};
    return places;
  }
  // Sequentially consistent: either the reader sees the table after a detach, or the detach sees the reader's bit.
  void note_reader(int rank) const {
    word(kReaders + static_cast<std::size_t>(rank) / 64 * 8)
        .fetch_or(std::uint64_t{1} << (rank % 64), std::memory_order_seq_cst);
  }
  // Returns and clears the bits of 64 ranks from `first` on.
  std::uint64_t take_readers(int first) const {
    return word(kReaders + static_cast<std::size_t>(first) / 8).exchange(0, std::memory_order_seq_cst);
  }
};

}  // namespace farside
