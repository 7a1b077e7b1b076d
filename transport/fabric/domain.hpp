// SPDX-License-Identifier: BSD-3-Clause
// FabricDomain: the provider, opened: libfabric's fabric, domain and completion queue, what of the provider's
// attributes farside needs, and the memory of this process that peers may access (fi_domain(3), fi_mr(3), fi_cq(3)).
//
// Thread safety: after open() any thread may call all members. Errors: kNoRoute when it is opened, kNoMemory if memory
// cannot be registered. Cost: no member issues an operation; register_memory() pins the pages (verbs: 100 ms per GiB).
// Memory: nothing per peer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/handles.hpp"

namespace farside {

class FabricDomain {
 public:
  // Opens the provider that was found (provider.hpp). `completions`: entries of the completion queue; 0: libfabric's
  // default. Errors: kNoRoute.
  static Result<FabricDomain> open(InfoHandle info, std::size_t completions);

  const char* provider() const { return info_->fabric_attr->prov_name; }
  const char* device() const { return info_->domain_attr->name; }
  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  fid_cq* queue() const { return queue_.get(); }
  // The descriptor of the completion queue, for poll(2).
  int queue_fd() const { return queue_fd_; }

  // As is_adapter(info()).
  bool by_adapter() const { return by_adapter_; }
  // Returns whether connections are sockets of TCP, whose state the kernel tells (tcp_path.hpp).
  bool by_sockets() const;
  // Returns whether local buffers must be registered (FI_MR_LOCAL).
  bool registers_local() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // The most bytes of one write or read of a transfer of so many bytes. Over TCP 4 MiB are 1.1 times as fast in parts
  // of kTcpPart as whole, or in parts of 256 KiB (two hosts on one machine, libfabric 1.17). Each part takes memory
  // until it is complete, so there are at most kMostTcpParts, of whole multiples of kTcpPart: no word is divided.
  static constexpr std::size_t kTcpPart = std::size_t{1} << 20;
  static constexpr std::size_t kMostTcpParts = 64;
  std::size_t largest_part(std::size_t bytes) const {
    const std::size_t largest = info_->ep_attr->max_msg_size;
    return by_adapter_ ? largest : std::min(largest, kTcpPart * (bytes / (kTcpPart * kMostTcpParts) + 1));
  }
  // The largest write of which the provider sends a copy (FI_INJECT), where the connections are an adapter's: it
  // completes the operations of a connection in their order, when they have reached the target.
  std::size_t largest_in_run() const { return by_adapter_ ? info_->tx_attr->inject_size : 0; }
  bool orders_messages_behind_writes() const;
  // Returns whether the provider says that connected endpoints have fetch-add and compare-and-swap on 64-bit words.
  bool advertises_atomics() const;

  // As the members of Endpoint.
  Result<Endpoint::Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) const;
  bool keys_are_chosen() const;

 private:
  FabricDomain() = default;

  // libfabric objects, in the order of opening.
  InfoHandle info_;
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  int queue_fd_ = -1;
  bool by_adapter_ = false;
};

}  // namespace farside
