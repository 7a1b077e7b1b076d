// SPDX-License-Identifier: BSD-3-Clause
// Opening the endpoint, and issuing operations.
#include "transport/fabric/fabric.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/message_ring.hpp"

namespace farside {

namespace {

// Prepares the local buffer of a write or read for the provider. Where local buffers must be registered, it is copied
// to or from a slot of registered memory, or has its own registration, `registered`, which the operation takes.
// May be called again for an operation for which the provider had no room. Returns 0 or a negative libfabric code.
int local_buffer(LocalMemory& memory, FabricOperation& operation, void* local, std::size_t bytes, bool writes,
                 FabricHandle<fid_mr>& registered, iovec& buffer, void*& descriptor) {
  buffer = {local, bytes};
  if (!memory.needed()) {
    if (writes && bytes <= kCopiedAtCall) buffer.iov_base = std::memcpy(operation.operands.data(), local, bytes);
    return 0;
  }
  if (bytes > LocalMemory::kSlotBytes) {
    if (registered != nullptr) operation.registered = std::move(registered);
    descriptor = fi_mr_desc(operation.registered.get());
    return 0;
  }
  if (operation.slot == nullptr) {
    if (const int code = memory.take(true, operation.slot); code != 0) return code;
    if (writes) std::memcpy(operation.slot->bytes, local, bytes);
  }
  if (!writes) {
    operation.into = local;
    operation.into_bytes = bytes;
  }
  buffer.iov_base = operation.slot->bytes;
  descriptor = operation.slot->descriptor;
  return 0;
}

// Registers a large local buffer. Waits until operations complete, if too many are registered.
// Returns null if it cannot be registered.
FabricHandle<fid_mr> register_large(LocalMemory& memory, Progress& endpoint, const void* base, std::size_t bytes,
                                    std::uint64_t access) {
  WakeEvent wake_event;
  for (Waiter waiter(endpoint, wake_event); !memory.begin_large();) waiter.pause();
  FabricHandle<fid_mr> registered;
  const int code = memory.register_memory(base, bytes, access, registered);
  if (code != 0) {
    memory.end_large(registered);
    log(LogLevel::kInfo, "{}; it is copied in parts",
        fabric_error(ErrorKind::kNoMemory, fmt::format("registering {} bytes of an operand", bytes), code).text);
  }
  return registered;
}

// Tries atomics over the adapter on memory of this process, and sets Fabric::by_value_. Returns why there are none;
// empty if their results are right.
std::string try_nic_atomics(OpenEndpoint& endpoint, std::optional<bool>& form) {
  alignas(64) std::uint64_t words[8] = {};
  const Result<Registration> exposed = endpoint.register_memory(words, sizeof words, random_bits());
  if (!exposed) return exposed.error().text;
  const Endpoint::Place place{endpoint.insert(endpoint.address()), exposed.value().key, 0};
  const std::atomic_ref word(words[0]);
  Pending pending;
  WakeEvent wake_event;
  Status status;
  const auto take = [&](std::uint64_t operand, const std::uint64_t* compare) {
    std::uint64_t fetched = 0;
    const ControlCall call = compare == nullptr ? ControlCall::kFetchAdd : ControlCall::kCompareAndSwap;
    status.keep(endpoint.control(pending, place, {call, {}, 0, operand, compare != nullptr ? *compare : 0}, &fetched));
    for (Waiter waiter(endpoint, wake_event); !pending.done();) waiter.pause();
    status.keep(pending.take_error());
    return fetched;
  };
  // Values that differ from every address.
  constexpr std::uint64_t kFirst = 0x0102030405060708, kAdded = 0x1000000000000001, kOther = 0xF1E2D3C4B5A69788;
  for (const bool by_value : {false, true}) {
    form = by_value;
    word.store(kFirst);
    const std::uint64_t fetched = take(kAdded, nullptr);
    // Without any change, no other form is tried: a provider that is right would read a value as an address.
    if (word.load() == kFirst) break;
    if (word.load() != kFirst + kAdded) continue;
    const std::uint64_t expected = kFirst + kAdded, unexpected = kFirst;
    const bool right = fetched == kFirst && take(kOther, &unexpected) == expected && word.load() == expected &&
                       take(kOther, &expected) == expected && word.load() == kOther;
    if (right && status) return {};
    break;
  }
  form.reset();
  return status ? "a fetch-add or a compare-and-swap on this process's own memory had a wrong result"
                : status.error().text;
}

}  // namespace

// Issues one operation. Repeats the call while the provider returns -FI_EAGAIN (queue full, connection being made) or
// too many operations or requests are in flight to the peer, and the peer is not abandoned. Between two attempts this
// thread takes completions itself, because its attempts count as polls. A lack of memory is treated like a full queue,
// a number of times: operations that complete give memory back.
//
// An operation fails, and is not issued, if notifications were lost before. A notification fails and is issued, since
// its receiver may know of no interruption since it began to wait.
template <class Issue>
Status Fabric::issue(Pending& pending, Pending::Class counted, Peer to, const char* what, Issue&& call,
                     bool notification) {
  PeerState& peer = peers_.of(to);
  FabricOperation* operation = nullptr;
  std::uint32_t failures = 0;
  int tries_without_memory = 1000;
  const auto again_without_memory = [&](auto&& attempt) -> ssize_t {
    try {
      return attempt();
    } catch (const std::bad_alloc&) {
      return --tries_without_memory > 0 ? -FI_EAGAIN : -FI_ENOMEM;
    }
  };
  for (Waiter waiter(waiting_, own_wake_event_);; waiter.pause()) {
    thread_.polled();  // else the completion of what is sent would wake the progress thread
    ssize_t code = 0;
    std::unique_lock held(peer.mutex);
    if (operation == nullptr) {
      operation = patiently([&] { return &peer.begin(); });
      failures = peer.failures;
    }
    if (!peer.ready()) {
      held.unlock();
      code = again_without_memory([&] { return make_ready(peer); });
      held.lock();
      if (code == -FI_ECONNRESET && notification) {
        pending.failed(fabric_error(ErrorKind::kPeer, what, code));
        code = -FI_EAGAIN;
      }
    }
    const auto may_issue = [&] {
      return peer.ready() && peer.in_flight <= limits_.operations_per_peer;  // this one included
    };
    if (code == 0 && may_issue())
      code = again_without_memory([&] { return call(*operation, peer.endpoint); });
    else if (code == 0)
      code = -FI_EAGAIN;
    if (code == 0) {
      // No thread can complete it before the mutex is released.
      peer.issued(*operation, pending, counted);
      peer.used = true;
      if (operation->completions_left == 0) peers_.finish(*operation);
      return {};
    }
    const bool abandoned = peer.failures != failures;
    if (code == -FI_EAGAIN && !abandoned) {
      held.unlock();
      poll();
      continue;
    }
    if (notification) {
      ++peer.notifications;
      peer.owes_number = true;
    }
    peers_.not_issued(*operation);
    held.unlock();
    if (code != -FI_EAGAIN) return pending.named(fabric_error(ErrorKind::kPeer, what, code));
    const std::scoped_lock all_held(mutex_);
    const std::string error = peer.connect_error();
    return pending.named(out_of_reach(peer, !error.empty()     ? "connecting to it: " + error
                                            : peer.connected() ? fmt::format("{} is not taken", what)
                                                               : "it does not answer the request to connect"));
  }
}

// Gives the peer an endpoint, if it is connected, and makes it active. Returns what Connections::reach() does. Called
// without the peer's mutex. Another thread may take the endpoint away at once.
ssize_t Fabric::make_ready(PeerState& peer) {
  const std::scoped_lock held(mutex_);
  peers_.activate(peer);
  fid_ep* endpoint = nullptr;
  const ssize_t code = connections_.reach(peer, endpoint);
  if (code != 0) return code;
  if (peer.losses.to_report.exchange(false, std::memory_order_relaxed)) return -FI_ECONNRESET;
  const std::scoped_lock held_peer(peer.mutex);
  peer.endpoint = endpoint;
  return 0;
}

Result<bool> Fabric::reach(Peer to) {
  const std::scoped_lock held(mutex_);
  PeerState& peer = peers_.of(to);
  fid_ep* endpoint = nullptr;
  (void)connections_.reach(peer, endpoint);
  if (peer.connected()) return true;
  std::string error = peer.connect_error();
  // A host that has vanished refuses nothing. That of a stopped process accepts the next attempt, too.
  const Clock::duration patience = Clock::duration(health_.timeout()) / 2;
  const bool limited = error.empty() && peer.current != nullptr && patience.count() > 0;
  if (limited && Clock::now() - peer.current->since > patience) {
    if (connections_.host_accepts(peer))
      connections_.stop(peer);
    else
      error = "it does not answer the request to connect";
  }
  if (error.empty()) return false;
  return Error{ErrorKind::kPeer, std::move(error)};
}

// Called with the mutex held.
Error Fabric::out_of_reach(const PeerState& peer, const std::string& why) const {
  const std::chrono::seconds timeout = health_.timeout(peer);
  return {ErrorKind::kPeer,
          fmt::format("libfabric {}: the peer is out of reach for {} s{}: {}", domain_.provider(), timeout.count(),
                      timeout == health_.timeout() ? " (FARSIDE_PEER_TIMEOUT)" : "", why)};
}

Result<std::unique_ptr<OpenEndpoint>> open_endpoint(InfoHandle info, const Settings& settings, Progress& progress,
                                                    Statistics& statistics) {
  Result<std::unique_ptr<Fabric>> opened = Fabric::open(std::move(info), settings, progress, statistics);
  if (!opened) return opened.error();
  return std::unique_ptr<OpenEndpoint>(std::move(opened.value()));
}

Fabric::Fabric(FabricDomain domain, const QueueLimits& limits, const Settings& settings, Progress& progress,
               Statistics& statistics, Resolve resolve, std::size_t openers)
    : waiting_(progress),
      statistics_(statistics),
      domain_(std::move(domain)),
      limits_(limits),
      health_(peers_, *this, domain_.by_adapter(), std::chrono::seconds(settings.peer_timeout)),
      replies_(limits.answers, peers_.memory(), statistics, [this](Reply& reply) { return send(reply); }),
      receives_(limits, peers_.memory()),
      connections_(domain_, peers_,
                   {domain_.by_adapter() || resolve ? openers : 0, [this] { thread_.wake(); }, std::move(resolve)}),
      eviction_(connections_, replies_, settings.connections) {
  // The provider no longer reads the buffers of messages on the connection, and fails itself the operations that were
  // to generate a completion. The others are requests, but some of their replies may have arrived before the event.
  connections_.lost = [this](PeerState& peer, const std::string& why, bool in_order) {
    take_completions();
    peers_.fail_awaiting(
        peer, Error{ErrorKind::kPeer, fmt::format("libfabric {}: the peer is lost: {}", domain_.provider(), why)},
        in_order);
  };
  // The peer may have sent DISCONNECT before it ended the connection.
  connections_.before_end = [this] { take_completions(); };
  connections_.before_more = [this](std::size_t number) { receives_.follow(number); };
  eviction_.share_node(1);
  if (domain_.registers_local()) peers_.memory().begin(domain_.domain());
}

Result<std::unique_ptr<Fabric>> Fabric::open(InfoHandle info, const Settings& settings, Progress& progress,
                                             Statistics& statistics, Resolve resolve, std::size_t openers) {
  const std::string name = info->fabric_attr->prov_name;
  const auto named = [&](const Error& error) {
    return Error{error.kind, fmt::format("provider {}: {}", name, error.text)};
  };
  const QueueLimits limits = queue_limits(is_adapter(*info));
  Result<FabricDomain> domain = FabricDomain::open(std::move(info), limits.completions);
  if (!domain) return named(domain.error());
  std::unique_ptr<Fabric> fabric(
      new Fabric(std::move(domain.value()), limits, settings, progress, statistics, std::move(resolve), openers));
  Connections& connections = fabric->connections_;
  Status started = connections.listen(limits.most_receives);
  if (started) started = fabric->receives_.begin(connections.receiver(), connections.most_receives());
  if (!started) return named(started.error());
  // Without its thread the endpoint is useless: no route.
  started = fabric->thread_.start(*fabric, fabric->domain_.queue_fd());
  if (!started) return named({ErrorKind::kNoRoute, started.error().text});
  if (!fabric->peers_.memory().needed() || !fabric->domain_.advertises_atomics()) return fabric;
  const std::string refused =
      settings.nic_atomics ? try_nic_atomics(*fabric, fabric->by_value_) : "FARSIDE_NIC_ATOMICS=off";
  log(LogLevel::kInfo, "libfabric {}: {}", name,
      refused.empty() ? fmt::format("atomics by the adapter, operands by {}", *fabric->by_value_ ? "value" : "address")
                      : fmt::format("no atomics by the adapter: {}", refused));
  return fabric;
}

// Issues a write or a read in parts: of largest_part(), or of a slot's size where the local buffer must be registered
// and cannot be.
Status Fabric::transfer(Pending& pending, Pending::Class counted, const Place& place, void* local, std::size_t bytes,
                        bool writes) {
  constexpr std::size_t kLarge = 65536;
  constexpr std::uint64_t kLongest = Timing::Nanoseconds(Timing::kLongestTransfer).count();
  if (bytes >= kLarge) [[unlikely]] {
    // 1 ns per byte. An addition of another thread may be lost.
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t until = std::max(now, transfers_until_.load(std::memory_order_relaxed)) + bytes;
    transfers_until_.store(std::min(until, now + kLongest), std::memory_order_relaxed);
  }
  LocalMemory& memory = peers_.memory();
  std::size_t most = domain_.largest_part(bytes);
  for (std::size_t offset = 0; offset < bytes;) {
    const std::size_t part = std::min(bytes - offset, most);
    std::byte* const from = static_cast<std::byte*>(local) + offset;
    FabricHandle<fid_mr> registered;
    if (memory.needed() && part > LocalMemory::kSlotBytes) {
      registered = register_large(memory, *this, from, part, writes ? FI_WRITE : FI_READ);
      if (registered == nullptr) {
        most = LocalMemory::kSlotBytes;
        continue;
      }
    }
    const char* const call = writes ? "fi_writemsg" : "fi_readmsg";
    Status issued =
        issue(pending, counted, place.peer, call, [&](FabricOperation& operation, fid_ep* endpoint) -> ssize_t {
          iovec here;
          void* descriptor = nullptr;
          if (const int code = local_buffer(memory, operation, from, part, writes, registered, here, descriptor);
              code != 0)
            return code;
          const fi_rma_iov there{place.key.base + place.offset + offset, part, place.key.key};
          const fi_msg_rma message{&here, &descriptor, 1, FI_ADDR_UNSPEC, &there, 1, &operation.provider_context, 0};
          return writes ? fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                        : fi_readmsg(endpoint, &message, FI_COMPLETION);
        });
    if (registered != nullptr) memory.end_large(registered);
    if (!issued) return issued;
    offset += part;
  }
  return {};
}

bool Fabric::has_message_ring(Peer peer) {
  if (!domain_.by_sockets()) return false;
  PeerState& state = peers_.of(peer);
  const std::scoped_lock held(state.mutex);
  return state.ready() && MessageRing::of(state.endpoint) != nullptr;
}

Status Fabric::request(Pending& pending, Peer peer, const HandlerRequest& request,
                       std::unique_ptr<OperationList> list) {
  const Pending::Class counted = list != nullptr && list->fetches() ? Pending::kFetches : Pending::kMessages;
  const auto send = [&](FabricOperation& operation, fid_ep* endpoint) -> ssize_t {
    if (request.last_interruption && *request.last_interruption != operation.peer.losses.last_interruption)
      return -FI_ECONNRESET;
    operation.message = request;
    RequestHeader& header = operation.message.header;
    // An adapter refuses a message for which no receive is posted. The reply tells the sender that the receive is
    // posted again.
    if (domain_.by_adapter()) header.flags = 0;
    if ((header.flags & RequestHeader::kNoReply) != 0) {
      operation.notification = true;
      header.generation = operation.peer.notifications + 1;
    } else {
      if (operation.peer.requests >= limits_.requests_per_peer) return -FI_EAGAIN;
      operation.await_reply();
      header.generation = operation.generation;
    }
    header.identity = address().identity;
    header.operation = peers_.number(operation);
    if (list != nullptr) operation.list = std::move(list);  // at the first of several attempts
    std::array<iovec, 3> parts;
    std::size_t count = 0;
    parts[count++] = {&header, sizeof header};
    if (operation.list != nullptr) {
      const std::span<const std::byte> bytes = operation.list->bytes();
      parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    if (header.controls > 0) parts[count++] = {operation.message.steps.data(), header.controls * sizeof(ControlStep)};
    if (MessageRing* const ring = MessageRing::of(endpoint)) {
      using enum MessageRing::Release;
      const bool copied = !operation.request && ring->copies({parts.data(), count});
      const auto release = operation.request ? kAnswer : copied ? kAtOnce : kCompletion;
      const ssize_t code = ring->write(endpoint, {parts.data(), count}, operation, release);
      if (code == 0) operation.completions_left = copied ? 0 : 1;  // the reply implies that a request was sent
      return code;
    }
    return send_message(peers_.memory(), endpoint, {parts.data(), count}, operation.slot, operation);
  };
  const bool notification = (request.header.flags & RequestHeader::kNoReply) != 0;
  return issue(pending, counted, peer, "fi_sendmsg", send, notification);
}

// An atomic of the target's adapter on a word of 64 bits (fi_atomic(3), fi_verbs(7)).
Status Fabric::control(Pending& pending, const Place& place, const ControlStep& step, std::uint64_t* fetched) {
  // An adapter reads and writes aligned words whole. No protocol writes a word on which others may use atomics
  // meanwhile (remote_memory.hpp).
  constexpr Pending::Class kCounted = Pending::kAtomics;
  std::uint64_t operand = step.operand;
  if (step.call == ControlCall::kRead)
    return transfer(pending, kCounted, place, fetched, step.words() * sizeof *fetched, false);
  if (step.call == ControlCall::kWrite) return transfer(pending, kCounted, place, &operand, sizeof operand, true);
  statistics_.add(RouteKind::kFabric, Counted::kNicAtomic, sizeof operand);
  const bool adds = step.call == ControlCall::kFetchAdd;
  const char* const name = adds ? "fi_fetch_atomic" : "fi_compare_atomic";
  return issue(pending, kCounted, place.peer, name, [&](FabricOperation& operation, fid_ep* endpoint) -> ssize_t {
    if (place.last_interruption && *place.last_interruption != operation.peer.losses.last_interruption)
      return -FI_ECONNRESET;
    if (operation.slot == nullptr) {
      if (const int code = peers_.memory().take(true, operation.slot); code != 0) return code;
    }
    // The slot receives the result; the operands are behind it.
    const LocalMemory::Slot& slot = *operation.slot;
    operation.into = fetched;
    operation.into_bytes = sizeof *fetched;
    const auto give = [&](std::uint64_t value, std::size_t at) -> void* {
      if (*by_value_) return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr)
      return std::memcpy(slot.bytes + at, &value, sizeof value);
    };
    void* const descriptor = *by_value_ ? nullptr : slot.descriptor;
    void* const first = give(operand, 8);
    const std::uint64_t address = place.key.base + place.offset;
    if (adds) {
      return fi_fetch_atomic(endpoint, first, 1, descriptor, slot.bytes, slot.descriptor, FI_ADDR_UNSPEC, address,
                             place.key.key, FI_UINT64, FI_SUM, &operation.provider_context);
    }
    return fi_compare_atomic(endpoint, first, 1, descriptor, give(step.compare, 16), descriptor, slot.bytes,
                             slot.descriptor, FI_ADDR_UNSPEC, address, place.key.key, FI_UINT64, FI_CSWAP,
                             &operation.provider_context);
  });
}

}  // namespace farside
