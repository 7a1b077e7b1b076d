// SPDX-License-Identifier: BSD-3-Clause
// Collects at rank 0 of `farside doctor` what the ranks have found. Waiting ranks sleep between tests, so that they
// leave their cores to others, and rank 0 can list at any time which ranks have not answered. All functions are
// collective; not thread-safe, except missing().
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <mpi.h>

namespace farside::tools {

class RankCollector {
 public:
  explicit RankCollector(MPI_Comm comm);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Returns the texts of all ranks at rank 0, in rank order; nothing at the others.
  std::vector<std::string> collect(const std::string& mine);
  // Returns the number of rank 0.
  int share(int number);
  // At rank 0 during collect(), returns the ranks that have not answered, in ascending order. Otherwise returns none.
  std::vector<int> missing() const;

 private:
  const MPI_Comm comm_;
  int rank_ = 0;
  int ranks_ = 1;
  int round_ = 0;  // of collect(): the tag of its messages
  mutable std::mutex mutex_;
  std::vector<bool> answered_;  // empty: no collect() is running
};

}  // namespace farside::tools
