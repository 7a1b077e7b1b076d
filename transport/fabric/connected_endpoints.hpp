// SPDX-License-Identifier: BSD-3-Clause
// An endpoint for each peer (FI_EP_MSG), connected when it is first needed, by either side. Each process listens; who connects
// shows that it knows the listener's secret, and the listener answers by its identity: the ranks of a job tell each other both
// through the runtime. All endpoints share one queue of receives.
//
// When both sides connect to each other at once, the request of the process with the lower identity stands: the other one
// accepts it and forgets its own. A request that is refused is made again after a while: Fabric gives the peer up in the end.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "transport/fabric/endpoints.hpp"

namespace farside {

class ConnectedEndpoints final : public Endpoints {
  using Clock = std::chrono::steady_clock;

 public:
  using Lost = std::function<void(Peer, const std::string&)>;
  static Result<std::unique_ptr<Endpoints>> open(const Domain& domain, Lost lost);
  ~ConnectedEndpoints() override;

  Result<Peer> insert(const FabricAddress& address) override;
  ssize_t reach(Peer peer, To& to, What what) override;
  fid_ep* receiver() const override { return receives_.get(); }
  bool progress() override;
  bool connecting() const override { return in_progress_ > 0; }
  std::size_t connections() const override { return to_stay_; }
  Clock::duration age(Peer peer) const override;
  std::uint64_t number(Peer peer) const override;
  std::optional<Peer> begin_parting(std::uint64_t number) override;
  bool part(Peer peer) override;
  fid* events() const override { return &events_->fid; }
  int events_fd() const override { return events_fd_; }
  void clear_lost(Peer peer) override;
  void failed(Peer peer, const fid_ep* endpoint, const std::string& why) override;
  void stop(Peer peer) override;

 private:
  // What both sides tell each other when they connect (fi_cm(3)'s private data).
  struct Hello {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t from;       // identity of the one that speaks
    std::uint64_t secret;     // of the listener; 0 in its answer
    std::uint64_t number;     // of the connection: random, by who connects
  };
  enum class State : std::uint8_t { kConnecting, kAccepting, kConnected, kParting, kEnded };
  struct Connection {
    FabricHandle<fid_ep> endpoint;
    Peer peer = 0;
    std::uint64_t number = 0;
    State state = State::kConnecting;
    bool initiated = false;
    bool to_part = false;
    bool counted = false;             // in to_stay_
    Clock::time_point since{};        // connected
    bool carries() const { return state == State::kConnected || state == State::kParting; }
  };
  struct Known {
    FabricAddress address;
    Connection* current = nullptr;
    Clock::time_point not_before{};   // of the next attempt
    std::uint32_t refused = 0;        // in a row
  };

  ConnectedEndpoints(const Domain& domain, Lost lost);
  Status set_up();
  Peer find(std::uint64_t identity);
  ssize_t open_endpoint(fi_info* info, FabricHandle<fid_ep>& out);
  Connection* add(FabricHandle<fid_ep> endpoint, Peer peer, State state, bool initiated, std::uint64_t number);
  ssize_t connect(Peer peer);
  void take_request(fi_info* info, const Hello* hello);
  void established(Connection& connection, const Hello* hello);
  void ended(Connection& connection, const std::string& why);
  void forget(Connection& connection);
  State end(Connection& connection);
  void stop_counting(Connection& connection);
  void close(Connection& connection);
  void take_event(std::uint32_t event, const fi_eq_cm_entry& entry, std::size_t bytes);
  void take_error();

  Domain domain_;
  const bool by_adapter_;
  Lost lost_;
  FabricHandle<fid_eq> events_;
  int events_fd_ = -1;
  FabricHandle<fid_ep> receives_;                    // shared by all endpoints
  FabricHandle<fid_pep> listener_;
  std::vector<Known> peers_;
  std::unordered_map<std::uint64_t, Peer> by_identity_;
  std::unordered_map<fid*, std::unique_ptr<Connection>> connections_;
  std::size_t to_stay_ = 0;                          // connections to peers that are neither parted from nor in kEnded
  std::size_t in_progress_ = 0;                      // connections in kConnecting or kAccepting
};

}  // namespace farside
