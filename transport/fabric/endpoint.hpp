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
#include <span>
#include <string>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/handler/message_handler.hpp"
#include "transport/handler/operation_list.hpp"

struct fid_mr;

namespace farside {

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
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  virtual const FabricAddress& address() const = 0;
  // Makes a peer known; the same address is the same peer.
  virtual Peer insert(const FabricAddress& address) = 0;

  using Registration = farside::Registration;
  // `wanted`: the key, if keys_are_chosen(); else the provider chooses one. Errors: kNoMemory.
  virtual Result<Registration> register_memory(void* base, std::size_t bytes, std::uint64_t wanted) = 0;
  // Returns whether a process chooses the keys of its memory, and offsets begin at its start. If all ranks of a space
  // choose the same keys, no rank needs to tell its own.
  virtual bool keys_are_chosen() const = 0;

  // A place in a peer's exposed memory.
  struct Place {
    Peer peer;
    RemoteKey key;
    std::uint64_t offset;  // bytes from the base that was exposed
  };

  // The following calls return when the provider has taken the operation; their Status has the errors of issuing.
  virtual Status write(Pending& pending, const Place& place, const void* local, std::size_t bytes) = 0;
  virtual Status read(Pending& pending, const Place& place, void* local, std::size_t bytes) = 0;
  // The same as write(), for many small writes: where that is cheaper, several writes share one completion (a run,
  // in_flight.hpp). A thread that waits for `pending` must call end_run() until `pending` is done; otherwise
  // the wait may take a second longer.
  virtual Status write_in_run(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
    return write(pending, place, local, bytes);
  }
  // Makes the provider generate the completion of such writes. Never waits.
  virtual void end_run(Pending& /*pending*/, Peer /*peer*/) {}
  // Returns whether control words and 64-bit integers are changed by atomics of the target's adapter (the domain nic
  // of data/accumulates.md), for which no thread there has to wake; otherwise the target's handler changes them.
  // Adapter atomics are atomic only among themselves. They take effect behind all operations that were issued to the
  // same peer before, and before all that are issued later.
  virtual bool nic_atomics() const = 0;
  // One step of the adapter on a control word of 64 bits. Precondition: nic_atomics(). The operands are copied;
  // `fetched` stays in use until `pending` is done.
  virtual Status control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                         const std::uint64_t* compare, std::uint64_t* fetched) = 0;
  // Returns whether a handler executes a request behind the writes that were issued to its process before.
  virtual bool orders_messages_behind_writes() const = 0;
  // Returns whether messages to the peer and their replies go through rings (message_ring.hpp). A small put or get then
  // takes less time as a message than as write() or read(), whose completions the provider signals.
  virtual bool has_message_ring(Peer /*peer*/) { return false; }
  // Sends one message to the handler of a peer. Fetched data go to the buffers of the list's operations.
  virtual Status execute(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list) = 0;
  // The same, with a step on a control word after the operations; `fetched` receives the word's previous value.
  // `list` may be null.
  virtual Status execute_and_control(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                                     const ControlStep& step, std::uint64_t* fetched) = 0;
  // The same as a notification: `pending` is done when the message is sent, and nothing is fetched (`fetched` stays in
  // use until then). The operations of `list` fetch nothing. The handler executes them and the step before the contents
  // of later messages, but RDMA that is issued later may overtake them.
  virtual Status notify(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                        const ControlStep& step, std::uint64_t* fetched) = 0;
  // Returns whether `pending` of a notification is done only when the handler has executed the message. An operation
  // that is issued after that cannot overtake the notification.
  virtual bool acknowledges_notifications() const = 0;
  // Returns how often notifications to the peer may have been lost with its connection. Each time the next operation
  // towards the peer fails for that reason.
  virtual std::uint32_t lost_notifications(Peer peer) const = 0;
  // Returns whether that operation is still to come.
  virtual bool has_loss_to_report(Peer peer) const = 0;
  // Interruptions: the ends of connections by which notifications of the peer may have been lost, numbered from 1 on
  // over all peers. The number of the last one, one load; and of the peer's last one. 0: there was none.
  virtual std::uint32_t interruptions() const = 0;
  virtual std::uint32_t last_interruption(Peer peer) const = 0;
  // Requests a connection to the peer unless there is one, and does not wait for it. Returns whether there is one, or
  // the error of the last attempt; empty: none has ended yet.
  struct Reach {
    bool connected = true;
    std::string error = {};
  };
  virtual Reach reach(Peer /*peer*/) { return {}; }
  // As execute_and_control(), with an acquire step before the operations, which may stop them (message.hpp), and a
  // release step after them. `result` stays in use until `pending` is done.
  virtual Status execute_locked(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                                const ControlStep& acquire_step, const ControlStep& release_step,
                                LockedResult& result) = 0;
  // Requests a page of the peer's table of attached regions (AttachedRegions::Page).
  virtual Status ask_for_regions(Pending& pending, const HandlerPlace& place, std::uint64_t first,
                                 std::span<std::byte> page) = 0;
  // Requests the description of a space (MessageHandler::ServedSpace).
  virtual Status ask_for_description(Pending& pending, const HandlerPlace& place, std::span<std::byte> description) = 0;

  // The spaces that this process's handler serves. The same as MessageHandler::publish and withdraw.
  virtual bool publish(std::uint64_t id, const MessageHandler::ServedSpace& space) = 0;
  virtual void withdraw(std::uint64_t id) = 0;
};

}  // namespace farside
