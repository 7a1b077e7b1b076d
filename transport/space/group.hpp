// SPDX-License-Identifier: BSD-3-Clause
// Group: the ranks that make a space together, and the collective operations that this needs. pmpi/ implements it with
// the MPI runtime; tests and the simulation of large jobs have implementations of their own.
//
// Thread safety: one thread per object. Errors: kPeer if a rank has died.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/result.hpp"

namespace farside {

class Group {
 public:
  Group(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Collective: replaces each word by the bitwise "or" of the words of all ranks. If `warning` is not null, it is
  // logged when some rank has not come for 10 s.
  virtual Status combine(std::span<std::uint64_t> words, const char* warning) = 0;
  // Collective: replaces the number by the lowest of all ranks.
  virtual Status take_lowest(int& number) = 0;
  // Collective: gives all ranks the bytes of `root`.
  virtual Status broadcast(std::span<std::byte> bytes, int root) = 0;
  // Collective: gives all ranks the bytes of each rank, in rank order. `all` has ranks() times as many as `own`.
  virtual Status gather(std::span<const std::byte> own, std::span<std::byte> all) = 0;

 protected:
  ~Group() = default;

 private:
  const int rank_;
  const int ranks_;
};

}  // namespace farside
