// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/endpoints.hpp"

#include "transport/fabric/connected_endpoints.hpp"
#include "transport/fabric/datagram_endpoint.hpp"

namespace farside {

Result<std::unique_ptr<Endpoints>> Endpoints::open(const Domain& domain, std::function<void(Peer, const std::string&)> lost) {
  if (domain.info->ep_attr->type == FI_EP_MSG) return ConnectedEndpoints::open(domain, std::move(lost));
  return DatagramEndpoint::open(domain);
}

}  // namespace farside
