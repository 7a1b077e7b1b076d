// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/datagram_endpoint.hpp"


namespace farside {

Result<std::unique_ptr<Endpoints>> DatagramEndpoint::open(const Domain& in) {
  auto opened = std::make_unique<DatagramEndpoint>();
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  fid_av* vector = nullptr;
  if (Status s = open_step("fi_av_open", fi_av_open(in.domain, &attributes, &vector, nullptr), vector, opened->address_vector_); !s) {
    return s.error();
  }
  fid_ep* endpoint = nullptr;
  if (Status s = open_step("fi_endpoint", fi_endpoint(in.domain, in.info, &endpoint, nullptr), endpoint, opened->endpoint_); !s) {
    return s.error();
  }
  int code = fi_ep_bind(endpoint, &vector->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint, &in.queue->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0) code = fi_enable(endpoint);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "enabling the endpoint", code);
  FabricAddress& address = opened->address_;
  address.size = address.bytes.size();
  code = fi_getname(&endpoint->fid, address.bytes.data(), &address.size);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "fi_getname", code);
  return std::unique_ptr<Endpoints>(std::move(opened));
}

Result<Peer> DatagramEndpoint::insert(const FabricAddress& address) {
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(address_vector_.get(), address.bytes.data(), 1, &peer, 0, nullptr);
  if (inserted != 1) return fabric_error(ErrorKind::kNoRoute, "fi_av_insert", inserted < 0 ? inserted : -FI_EOTHER);
  return peer;
}

}  // namespace farside
