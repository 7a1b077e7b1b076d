// SPDX-License-Identifier: BSD-3-Clause
// A client that connects to a rank's endpoint by libfabric without farside, with any private data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include "transport/base/address.hpp"
#include "transport/fabric/handles.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/fabric/sockets.hpp"

namespace farside::testing {

// farside's own private data (Connections::Hello): its layout is part of the protocol between processes of one version.
struct CallerHello {
  std::uint32_t magic = 0x46415253, version = 4;
  std::uint64_t from = 1, secret = 0, number = 7, attempt = 1;
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

class Caller {
 public:
  Caller(const FabricAddress& address, std::span<const std::byte> hello) {
    Result<InfoHandle> found = find_provider("tcp");
    if (!found) return;
    info_ = std::move(found.value());
    info_->ep_attr->rx_ctx_cnt = 0;
    fid_fabric* fabric = nullptr;
    fid_domain* domain = nullptr;
    fid_eq* events = nullptr;
    fid_cq* queue = nullptr;
    fid_ep* endpoint = nullptr;
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = FI_WAIT_UNSPEC;
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_MSG;
    if (fi_fabric(info_->fabric_attr, &fabric, nullptr) != 0) return;
    fabric_.reset(fabric);
    if (fi_eq_open(fabric, &eq_attr, &events, nullptr) != 0) return;
    events_.reset(events);
    if (fi_domain(fabric, info_.get(), &domain, nullptr) != 0) return;
    domain_.reset(domain);
    if (fi_cq_open(domain, &cq_attr, &queue, nullptr) != 0) return;
    queue_.reset(queue);
    if (fi_endpoint(domain, info_.get(), &endpoint, nullptr) != 0) return;
    endpoint_.reset(endpoint);
    if (fi_ep_bind(endpoint, &events->fid, 0) != 0 || fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) != 0)
      return;
    const Sockaddr there = to_sockaddr(address.socket);
    if (fi_enable(endpoint) != 0 || fi_connect(endpoint, &there.any, hello.data(), hello.size()) != 0) return;
    std::uint32_t event = 0;
    alignas(8) std::array<std::byte, 512> entry;
    const ssize_t read = fi_eq_sread(events, &event, entry.data(), entry.size(), 10'000, 0);
    if (read == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(events, &error, 0);
      outcome_ = error.err;
    } else if (read > 0 && event == FI_CONNECTED) {
      outcome_ = 0;
    }
  }
  // 0: the client is connected. Otherwise libfabric's error, or -1 if an earlier call has failed.
  int outcome() const { return outcome_; }
  fid_ep* endpoint() const { return endpoint_.get(); }
  fid_cq* queue() const { return queue_.get(); }

 private:
  InfoHandle info_;
  FabricHandle<fid_fabric> fabric_;
  FabricHandle<fid_eq> events_;
  FabricHandle<fid_domain> domain_;
  FabricHandle<fid_cq> queue_;
  FabricHandle<fid_ep> endpoint_;
  int outcome_ = -1;
};

}  // namespace farside::testing
