// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/domain.hpp"

#include <utility>

#include <rdma/fi_atomic.h>

#include "transport/fabric/provider.hpp"
#include "transport/handler/memory_fault.hpp"

namespace farside {

Result<FabricDomain> FabricDomain::open(InfoHandle info, std::size_t completions) {
  FabricDomain opened;
  opened.info_ = std::move(info);
  opened.by_adapter_ = is_adapter(*opened.info_);
  fid_fabric* fabric = nullptr;
  int code = fi_fabric(opened.info_->fabric_attr, &fabric, nullptr);
  if (Status s = open_step("fi_fabric", code, fabric, opened.fabric_); !s) return s.error();
  fid_domain* domain = nullptr;
  code = fi_domain(fabric, opened.info_.get(), &domain, nullptr);
  if (Status s = open_step("fi_domain", code, domain, opened.domain_); !s) return s.error();
  if (opened.by_sockets()) MemoryFault::report_sends_of(reinterpret_cast<const void*>(domain->fid.ops->close));

  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.size = completions;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  code = fi_cq_open(domain, &attributes, &queue, nullptr);
  if (Status s = open_step("fi_cq_open", code, queue, opened.queue_); !s) return s.error();
  code = fi_control(&queue->fid, FI_GETWAIT, &opened.queue_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the completion queue's file descriptor", code);
  return opened;
}

bool FabricDomain::by_sockets() const {
  const std::string_view name = provider();
  return name.starts_with("tcp") || name.starts_with("net");
}

bool FabricDomain::orders_messages_behind_writes() const {
  return (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0;
}

bool FabricDomain::advertises_atomics() const {
  if (info_->ep_attr->type != FI_EP_MSG || (info_->caps & FI_ATOMIC) == 0) return false;
  const auto has = [&](fi_op op, std::uint64_t flags) {
    fi_atomic_attr attributes{};
    return fi_query_atomic(domain_.get(), FI_UINT64, op, &attributes, flags) == 0 && attributes.count >= 1;
  };
  return has(FI_SUM, FI_FETCH_ATOMIC) && has(FI_CSWAP, FI_COMPARE_ATOMIC);
}

Result<Endpoint::Registration> FabricDomain::register_memory(void* base, std::size_t bytes,
                                                             std::uint64_t wanted) const {
  const fi_domain_attr& attributes = *info_->domain_attr;
  if (attributes.mr_key_size < sizeof wanted) wanted &= (1ULL << (8 * attributes.mr_key_size)) - 1;
  fid_mr* region = nullptr;
  const int code = fi_mr_reg(domain_.get(), base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                             wanted, 0, &region, nullptr);
  if (code != 0) {
    return fabric_error(ErrorKind::kNoMemory,
                        fmt::format("registering {} bytes with {} (locked memory limit: ulimit -l)", bytes, provider()),
                        code);
  }
  Endpoint::Registration registration;
  registration.region.reset(region);
  registration.key.base = (attributes.mr_mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uint64_t>(base) : 0;
  registration.key.key = fi_mr_key(region);
  return registration;
}

bool FabricDomain::keys_are_chosen() const {
  const fi_domain_attr& attributes = *info_->domain_attr;
  return (attributes.mr_mode & (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR)) == 0 &&
         attributes.mr_key_size >= sizeof(std::uint64_t);
}

}  // namespace farside
