// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict: the memory of the logs of a window's ranks (epochs/races/shared_log.hpp). It is a space of its
// own, so the ranks reach it by the same routes as windows. Cost: each read or write is one operation and its flush.
#pragma once

#include <memory>
#include <utility>

#include "epochs/races/shared_log.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

class LogSpace final : public epochs::LogMemory {
 public:
  explicit LogSpace(std::unique_ptr<Space> space) : space_(std::move(space)) {}

  Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) override {
    if (Status issued = space_->route(rank).get(rank, offset, to, bytes); !issued) return issued;
    return space_->route(rank).flush(rank);
  }
  Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) override {
    if (Status issued = space_->route(rank).put(rank, offset, from, bytes); !issued) return issued;
    return space_->route(rank).flush(rank);
  }
  const Space& space() const { return *space_; }

 private:
  std::unique_ptr<Space> space_;
};

}  // namespace farside::pmpi
