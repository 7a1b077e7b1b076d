// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/space.hpp"

#include <algorithm>
#include <utility>

#include "transport/routes/fabric/fabric_route.hpp"
#include "transport/space/regions.hpp"

namespace farside {

Space::Space(const Request& request)
    : rank_(request.rank),
      ranks_(request.ranks),
      id_(request.id),
      shared_(request.shared),
      words_(request.rank),
      mapped_(words_.node(), request.rank),
      cma_(words_.node(), request.rank) {
  if (request.threaded) cma_.expect_threads();
}

Space::~Space() {
  fabric_.reset();
  if (node_handler_ != nullptr) node_handler_->withdraw(id_);
}

OperationCounts& Space::count_by_target(bool threaded) {
  counts_ = std::make_unique<OperationCounts>(threaded);
  for (NodeTarget& target : words_.node().all()) words_.node().make_extra(target).counts = counts_->row(target.rank);
  mapped_.count_in(counts_.get());
  cma_.count_in(counts_.get());
  if (fabric_ != nullptr) fabric_->count_in(counts_.get());
  return *counts_;
}

void Space::expect_threads() {
  if (counts_ != nullptr) counts_->expect_threads();
  mapped_.expect_threads();
  cma_.expect_threads();
  if (fabric_ != nullptr) fabric_->expect_threads();
}

bool Space::uses(RouteKind kind) const {
  if (ranks_ == 1) return kind == RouteKind::kSelf;
  const NodeTargets& node = words_.node();
  if (kind == RouteKind::kFabric && static_cast<int>(node.size()) < ranks_) return true;
  return std::ranges::any_of(node.all(),
                             [&](const NodeTarget& each) { return each.rank != rank_ && node.route(each) == kind; });
}

Route& Space::other_route() { return *fabric_; }

Status Space::flush_all(bool locally) {
  Status queued = cma_.flush_all();
  Status status = fabric_ != nullptr ? fabric_->flush_all(locally) : Status();
  (void)mapped_.flush_all();
  return queued ? std::move(status) : std::move(queued);
}

FabricControl* Space::deferred_locks(int target) {
  return shared_ || words_.mapped(target) || route(target).immediate() ? nullptr : fabric_->locks();
}

Result<Space::Extent> Space::extent(int target) {
  const NodeTarget* const here = words_.node().find(target);
  if (here != nullptr) return Extent{here->bytes, here->unit};
  return fabric_->extent(target);
}

Space::MappedData Space::mapped_data(int target) const {
  const NodeTarget* const here = words_.node().find(target);
  if (here == nullptr) return {};
  const NodeTargetExtra* const extra = words_.node().extra(*here);
  std::byte* const base = here->data != nullptr || extra == nullptr ? here->data : extra->memory;
  if (base == nullptr || (here->bytes == 0 && !contiguous_)) return {nullptr, 0, here->unit};
  return {base, here->bytes, here->unit};
}

}  // namespace farside
