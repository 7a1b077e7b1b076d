// SPDX-License-Identifier: BSD-3-Clause
// One endpoint for all peers (FI_EP_RDM): the provider connects where it must.
#pragma once

#include "transport/fabric/endpoints.hpp"

namespace farside {

class DatagramEndpoint final : public Endpoints {
 public:
  static Result<std::unique_ptr<Endpoints>> open(const Domain& domain);

  Result<Peer> insert(const FabricAddress& address) override;
  ssize_t reach(Peer peer, To& to, What /*what*/) override {
    to = {endpoint_.get(), peer};  // addresses are indices (FI_AV_TABLE)
    return 0;
  }
  fid_ep* receiver() const override { return endpoint_.get(); }
  fid_ep* any() const override { return endpoint_.get(); }

 private:
  FabricHandle<fid_av> address_vector_;
  FabricHandle<fid_ep> endpoint_;
};

}  // namespace farside
