// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/dead_ranks.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "epochs/protocols/control_block.hpp"

namespace farside::pmpi {

std::vector<DeadRanks::Rank> DeadRanks::look(int awaited) {
  const std::scoped_lock held(mutex_);
  std::vector<Rank> dead;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!control_.mapped(rank)) continue;
    const ProcessIdentity process = space_.words().process_of(rank);
    if (process.is_dead()) dead.push_back({rank, fmt::format(" (process {})", process.pid())});
  }
  reads_.remove_if([](const Read& read) { return read.operation.done(); });
  std::set<int> ranks{awaited};
  ranks.insert(suspects_.begin(), suspects_.end());
  for (int i = 0; i < space_.ranks() && ranks.size() < kMostReads; ++i) {
    ranks.insert(next_);
    next_ = (next_ + 1) % space_.ranks();
  }
  for (const int rank : ranks) {
    if (!control_.mapped(rank)) look_over_fabric(rank, dead);
  }
  return dead;
}

void DeadRanks::look_over_fabric(int rank, std::vector<Rank>& dead) {
  auto read = std::ranges::find(reads_, rank, &Read::rank);
  const bool failed = read != reads_.end() && read->operation.failed();
  std::string why = failed ? read->operation.take_error().error().text : "";
  if (failed) {
    reads_.erase(read);
    read = reads_.end();
  }
  if (control_.route() == nullptr) return;
  const ControlRoute::Reach reach = control_.route()->reach(rank);
  if (!failed && !reach.connected) why = reach.error;
  const bool suspected = suspects_.erase(rank) != 0;
  if (!why.empty()) {
    if (failed || suspected) dead.push_back({rank, fmt::format(" ({})", why)});
    suspects_.insert(rank);
  } else if (read == reads_.end() && control_.route()->may_read(rank)) {
    control_.read(reads_.emplace_back(rank).operation, rank, epochs::ControlBlock::kLock);
  }
}

}  // namespace farside::pmpi
