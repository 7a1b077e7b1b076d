// SPDX-License-Identifier: BSD-3-Clause
// Endpoint: the interface by which the routes of a space access other processes. Fabric (fabric.hpp) implements it with
// libfabric, and documents its behaviour. A simulation implements it to count the calls. No header above fabric/ needs
// libfabric's.
//
// Thread safety, errors and cost: those of Fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message.hpp"
#include "transport/handler/message_handler.hpp"

struct fid_mr;

namespace farside {

// Loads libfabric, and starts it, if the launcher says that the ranks are on several nodes: their first window would
// wait for that. Called by MPI_Init. No call is needed on one node, or where nothing is known.
void start_libfabric_between_nodes();

// A registration of memory that peers may access with the key until the Registration is destroyed.
struct Registration {
  struct Close {
    void operator()(fid_mr* region) const;
  };
  std::unique_ptr<fid_mr, Close> region;
  RemoteKey key;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual const FabricAddress& address() const = 0;
  // Makes a peer known; the same address is the same peer.
  virtual Peer insert(const FabricAddress& address) = 0;

  // `wanted`: the key, if keys_are_chosen(); else the provider chooses one. Errors: kNoMemory.
  virtual Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) = 0;
  // Returns whether a process chooses the keys of its memory, and offsets begin at its start. If all ranks of a space
  // choose the same keys, no rank needs to tell its own.
  virtual bool keys_are_chosen() const = 0;

  // A place in a peer's exposed memory.
  struct Place {
    Peer peer;
    RemoteKey key;
    std::uint64_t offset;                              // bytes from the base that was exposed
    std::optional<std::uint32_t> last_interruption{};  // of control(), as in HandlerRequest
  };

  // The following calls return when the provider has taken the operation; their Status has the errors of issuing. An
  // operation counts in `pending`, in the class of the call (control(): kAtomics), until it has taken effect.
  virtual Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) = 0;
  virtual Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) = 0;
  // Returns whether control words and 64-bit integers are changed by atomics of the target's adapter (the domain nic
  // of data/accumulates.md), for which no thread there has to wake; otherwise the target's handler changes them.
  // Adapter atomics are atomic only among themselves. They take effect behind all operations that were issued to the
  // same peer before, and before all that are issued later.
  virtual bool nic_atomics() const = 0;
  // One step of the adapter on a word of 64 bits, which `place` names instead of the step. Precondition: nic_atomics().
  // The operands are copied; `fetched` stays in use until `pending` is done.
  virtual Status control(Pending& pending, const Place& place, const ControlStep& step, std::uint64_t* fetched) = 0;
  // Returns whether messages to the peer and their replies go through rings (message_ring.hpp). A small put or get then
  // takes less time as a message than as write() or read(), whose completions the provider signals.
  virtual bool has_message_ring(Peer /*peer*/) { return false; }
  // Sends a message to the handler of a peer (handler/message.hpp), which HandlerRequest::to() has addressed. Fetched
  // data go to the buffers of the operations of `list`, which may be null, and to those of the request, which stay in
  // use until `pending` is done. `pending` of a notification is done when the message is sent. The handler executes a
  // request behind the writes that were issued to its process before; those of a notification, which fetch nothing,
  // before the contents of later messages, but RDMA that is issued later may overtake them.
  virtual Status request(Pending& pending, Peer peer, const HandlerRequest& request,
                         std::unique_ptr<OperationList> list) = 0;
  // Returns whether `pending` of a notification is done only when the handler has executed the message. An operation
  // that is issued after that cannot overtake the notification.
  virtual bool acknowledges_notifications() const = 0;
  // Interruptions: the ends of connections by which notifications of the peer may have been lost, numbered from 1 on
  // over all peers. The number of the last one, one load. 0: there was none.
  virtual std::uint32_t interruptions() const = 0;
  // Losses among the peer's and this process's notifications.
  virtual const PeerLosses& losses(Peer peer) = 0;
  // Requests a connection to the peer unless there is one, and does not wait for it. Returns whether there is one; the
  // error is that of the last attempt.
  virtual Result<bool> reach(Peer /*peer*/) { return true; }

  // The spaces that this process's handler serves. The same as MessageHandler::publish and withdraw.
  virtual bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) = 0;
  virtual void withdraw(std::uint64_t id) = 0;
};

// An endpoint of this process, with the bit of its provider; null: none.
struct UsedEndpoint {
  Endpoint* endpoint = nullptr;
  Providers provider = 0;
};

// An endpoint of this process with its device, and its progress: a poll does nothing while another thread polls.
// Process owns the open ones.
class OpenEndpoint : public Endpoint, public Progress {
 public:
  virtual const char* provider() const = 0;
  virtual const char* device() const = 0;
  // Sets the number of processes of this node, this one included, that use the fabric or may use it. They share the
  // node's resources for connections (connecting.hpp). Only the largest number of all calls counts, which is returned;
  // before the first call it is 1.
  virtual std::size_t share_node(std::size_t processes) = 0;

  // For application threads that test a condition once. Handles everything that has arrived, and does not rely on the
  // poll of another thread, which may have begun before the arrival.
  virtual void poll_now() = 0;
  // For threads that wait in the MPI runtime, called repeatedly from its progress engine: polls while the progress
  // thread leaves arrivals to them (AdaptivePolling), else costs two loads and a store. Returns whether anything
  // completed or arrived.
  virtual bool poll_from_runtime() = 0;
  // A peer on trial is abandoned after Timing::kTrial, if FARSIDE_PEER_TIMEOUT is not shorter. The time of other peers
  // does not change. Each call with `on` is followed by one without.
  virtual void set_on_trial(Peer peer, bool on) = 0;
};

}  // namespace farside
