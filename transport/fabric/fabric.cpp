// SPDX-License-Identifier: BSD-3-Clause
// Opening the endpoint, and issuing operations. What moves it on is in fabric_progress.cpp.
#include "transport/fabric/fabric.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/base/timing.hpp"
#include "transport/fabric/buffers.hpp"
#include "transport/fabric/message_ring.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {

// Issues one operation. Repeats the call while the provider returns -FI_EAGAIN (queue full, connection being made) or
// too many operations or requests are in flight to the peer, and the peer is not abandoned. Between two attempts this
// thread takes completions itself, because its attempts count as polls, and the progress thread backs off while threads
// poll.
//
// A lack of memory is treated like a full queue, a number of times: operations that complete give memory back.
template <class Issue>
Status Fabric::issue(Pending& pending, Peer peer, const char* what, Issue&& call) {
  PeerState& peer_state = patiently([&]() -> PeerState& { return progress_.in_flight().peers().of(peer); });
  Operation* operation = nullptr;
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
    progress_.polled();  // else the completion of what is sent would wake the progress thread
    ssize_t code = 0;
    std::unique_lock held(peer_state.mutex);
    if (operation == nullptr) {
      operation = patiently([&] { return &OperationsInFlight::begin(peer_state); });
      failures = peer_state.failures;
    }
    if (!peer_state.ready()) {
      held.unlock();
      code = again_without_memory([&] { return progress_.make_ready(peer_state); });
      held.lock();
    }
    const auto may_issue = [&] {
      return peer_state.ready() && peer_state.in_flight <= progress_.limits().operations_per_peer;  // this one included
    };
    if (code == 0 && may_issue())
      code = again_without_memory([&] { return call(*operation, peer_state.endpoint); });
    else if (code == 0)
      code = -FI_EAGAIN;
    if (code == 0) {
      // No thread can complete it before the mutex is released.
      OperationsInFlight::issued(*operation, peer_state, pending, peer_state.endpoint);
      peer_state.used = true;
      return {};
    }
    if (code == -FI_EAGAIN && peer_state.failures == failures) {
      held.unlock();
      progress_.poll();
      continue;
    }
    progress_.in_flight().not_issued(*operation, peer_state);
    held.unlock();
    if (code == -FI_EAGAIN) return pending.named(progress_.not_taken(peer, what));
    return pending.named(fabric_error(ErrorKind::kPeer, what, code));
  }
}

Result<std::unique_ptr<OpenEndpoint>> open_endpoint(InfoHandle info, const Settings& settings, Progress& progress,
                                                    Statistics& statistics) {
  Result<std::unique_ptr<Fabric>> opened = Fabric::open(std::move(info), settings, progress, statistics);
  if (!opened) return opened.error();
  return std::unique_ptr<OpenEndpoint>(std::move(opened.value()));
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
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(domain.value()), limits, settings, progress, statistics));
  if (Status status = fabric->set_up(settings, std::move(resolve), openers); !status) return named(status.error());
  return fabric;
}

Status Fabric::set_up(const Settings& settings, Resolve resolve, std::size_t openers) {
  if (Status s = progress_.start(settings, std::move(resolve), openers); !s) return s;
  // A slot receives the result of an atomic; the operands are behind it.
  if (progress_.in_flight().memory().needed() && progress_.domain().advertises_atomics()) {
    const std::string refused = settings.nic_atomics ? try_nic_atomics() : "FARSIDE_NIC_ATOMICS=off";
    log(LogLevel::kInfo, "libfabric {}: {}", provider(),
        refused.empty() ? fmt::format("atomics by the adapter, operands by {}, results in {} byte order",
                                      nic_form_->by_value ? "value" : "address",
                                      nic_form_->swapped ? "the other" : "this processor's")
                        : fmt::format("no atomics by the adapter: {}", refused));
  }
  return {};
}

// Registers a large local buffer. Waits until operations complete, if too many are registered.
// Returns null if it cannot be registered.
FabricHandle<fid_mr> Fabric::register_large(const void* base, std::size_t bytes, std::uint64_t access) {
  for (Waiter waiter(waiting_, own_wake_event_);; waiter.pause()) {
    if (progress_.in_flight().memory().begin_large()) break;
    progress_.poll();
  }
  FabricHandle<fid_mr> registered;
  const int code = progress_.in_flight().memory().register_memory(base, bytes, access, registered);
  if (code != 0) {
    progress_.in_flight().memory().end_large(registered);
    log(LogLevel::kInfo, "{}; it is copied in parts",
        fabric_error(ErrorKind::kNoMemory, fmt::format("registering {} bytes of an operand", bytes), code).text);
  }
  return registered;
}

// Issues a write or a read in parts: of largest_part(), or of a slot's size where the local buffer must be registered
// and cannot be. issue_part(offset, bytes, registered) may take the registration.
template <class IssuePart>
Status Fabric::issue_parts(const void* local, std::size_t bytes, std::uint64_t access, IssuePart&& issue_part) {
  std::size_t most = progress_.domain().largest_part(bytes);
  for (std::size_t offset = 0; offset < bytes;) {
    const std::size_t part = std::min(bytes - offset, most);
    FabricHandle<fid_mr> registered;
    if (progress_.in_flight().memory().needed() && part > LocalMemory::kSlotBytes) {
      registered = register_large(static_cast<const std::byte*>(local) + offset, part, access);
      if (registered == nullptr) {
        most = LocalMemory::kSlotBytes;
        continue;
      }
    }
    Status issued = issue_part(offset, part, registered);
    if (registered != nullptr) progress_.in_flight().memory().end_large(registered);
    if (!issued) return issued;
    offset += part;
  }
  return {};
}

Status Fabric::write(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
  progress_.expect_transfer(bytes);
  return issue_parts(local, bytes, FI_WRITE, [&](std::size_t offset, std::size_t part, FabricHandle<fid_mr>& mr) {
    return issue(pending, place.peer, "fi_writemsg", [&](Operation& operation, fid_ep* endpoint) {
      ProviderBuffer buffer;
      const int code = outgoing(progress_.in_flight().memory(), operation,
                                static_cast<const std::byte*>(local) + offset, part, mr, buffer);
      if (code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{place.key.base + place.offset + offset, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, FI_ADDR_UNSPEC, &there, 1, &operation.provider_context, 0};
      return fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  });
}

Status Fabric::write_in_run(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
  // While the provider's queue is full, this thread takes completions, as in issue().
  if (bytes <= progress_.domain().largest_in_run()) {
    PeerState& peer_state = progress_.in_flight().peers().of(place.peer);
    for (int tries = 0; tries < Timing::kTriesInRun; ++tries) {
      progress_.polled();
      const ssize_t code = join_run(peer_state, pending, place, local, bytes);
      if (code == 0) return {};
      if (code != -FI_EAGAIN) break;
      progress_.poll();
    }
  }
  return write(pending, place, local, bytes);
}

// Issues a small write as one of a run. Returns 0, -FI_EAGAIN if the provider has no room, or another code if the write
// must be issued by itself.
ssize_t Fabric::join_run(PeerState& peer_state, Pending& pending, const Place& place, const void* local,
                         std::size_t bytes) {
  const std::scoped_lock held(peer_state.mutex);
  if (!peer_state.ready()) return -FI_ENOTCONN;
  Operation* const run = progress_.in_flight().run_for_write(peer_state, pending);
  if (run == nullptr) return -FI_ENOBUFS;
  const bool last = OperationsInFlight::ends_run(peer_state);
  const std::uint64_t address = place.key.base + place.offset;
  ssize_t code = 0;
  if (last) {
    const iovec here{const_cast<void*>(local), bytes};
    const fi_rma_iov there{address, bytes, place.key.key};
    const fi_msg_rma message{&here, nullptr, 1, FI_ADDR_UNSPEC, &there, 1, &run->provider_context, 0};
    code = fi_writemsg(peer_state.endpoint, &message, FI_INJECT | FI_COMPLETION | FI_DELIVERY_COMPLETE);
  } else {
    code = fi_inject_write(peer_state.endpoint, local, bytes, FI_ADDR_UNSPEC, address, place.key.key);
  }
  if (code != 0) {
    progress_.in_flight().not_written(*run, peer_state);
    return code;
  }
  OperationsInFlight::written(*run, peer_state, pending, peer_state.endpoint, last);
  peer_state.used = true;
  return 0;
}

void Fabric::end_run(Pending& pending, Peer peer) {
  PeerState* const peer_state = progress_.in_flight().peers().find(peer);
  if (peer_state == nullptr) return;
  const std::scoped_lock held(peer_state->mutex);
  OperationsInFlight::waits(*peer_state);
  progress_.end_run(*peer_state, &pending);
}

Status Fabric::read(Pending& pending, const Place& place, void* local, std::size_t bytes) {
  progress_.expect_transfer(bytes);
  return issue_parts(local, bytes, FI_READ, [&](std::size_t offset, std::size_t part, FabricHandle<fid_mr>& mr) {
    return issue(pending, place.peer, "fi_readmsg", [&](Operation& operation, fid_ep* endpoint) {
      ProviderBuffer buffer;
      const int code = incoming(progress_.in_flight().memory(), operation, static_cast<std::byte*>(local) + offset,
                                part, mr, buffer);
      if (code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{place.key.base + place.offset + offset, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, FI_ADDR_UNSPEC, &there, 1, &operation.provider_context, 0};
      return fi_readmsg(endpoint, &message, FI_COMPLETION);
    });
  });
}

bool Fabric::has_message_ring(Peer peer) {
  if (!progress_.domain().by_sockets()) return false;
  PeerState& peer_state = progress_.in_flight().peers().of(peer);
  const std::scoped_lock held(peer_state.mutex);
  return peer_state.ready() && MessageRing::of(peer_state.endpoint) != nullptr &&
         !peer_state.has_unacknowledged_sends();
}

Status Fabric::execute(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::execute_and_control(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                                   const ControlStep& step, std::uint64_t* fetched) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  request.header.controls = 1;
  request.steps = {step};
  request.fetched = std::as_writable_bytes(std::span(fetched, step.words()));
  return send_request(pending, place, request, std::move(list));
}

// An adapter refuses a message for which no receive is posted. The reply tells the sender that the receive is posted
// again.
Status Fabric::notify(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                      const ControlStep& step, std::uint64_t* fetched) {
  if (progress_.domain().by_adapter()) return execute_and_control(pending, place, std::move(list), step, fetched);
  Request request;
  request.header.kind = MessageKind::kOperations;
  request.header.controls = 1;
  request.header.flags = RequestHeader::kNoReply;
  request.steps = {step};
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::execute_locked(Pending& pending, const HandlerPlace& place, std::unique_ptr<OperationList> list,
                              const ControlStep& acquire_step, const ControlStep& release_step, LockedResult& result) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  request.header.controls = kMostControls;
  request.steps = {acquire_step, release_step};
  request.locked_result = &result;
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::ask_for_regions(Pending& pending, const HandlerPlace& place, std::uint64_t first,
                               std::span<std::byte> page) {
  Request request;
  request.header.kind = MessageKind::kRegions;
  request.header.offset = first;
  request.header.count = static_cast<std::uint32_t>(page.size());
  request.fetched = page;
  return send_request(pending, place, request, nullptr);
}

Status Fabric::ask_for_description(Pending& pending, const HandlerPlace& place, std::span<std::byte> description) {
  Request request;
  request.header.kind = MessageKind::kDescribe;
  request.header.count = static_cast<std::uint32_t>(description.size());
  request.fetched = description;
  return send_request(pending, place, request, nullptr);
}

Status Fabric::send_request(Pending& pending, const HandlerPlace& place, const Request& request,
                            std::unique_ptr<OperationList> list) {
  return issue(pending, place.peer, "fi_sendmsg", [&](Operation& operation, fid_ep* endpoint) -> ssize_t {
    const PeerState& peer_state = progress_.in_flight().peers().of(place.peer);
    if ((request.header.flags & RequestHeader::kNoReply) != 0) {
      OperationsInFlight::notifies(operation);
    } else {
      if (peer_state.requests >= progress_.limits().requests_per_peer) return -FI_EAGAIN;
      OperationsInFlight::await_reply(operation);
    }
    operation.fetched = request.fetched.data();
    operation.fetched_bytes = request.fetched.size();
    operation.locked_result = request.locked_result;
    operation.steps = request.steps;
    operation.header = request.header;
    operation.header.sender = place.sender;
    operation.header.identity = address().identity;
    operation.header.space = place.space;
    operation.header.operation = progress_.in_flight().number(operation);
    operation.header.generation = operation.generation;
    if (list != nullptr) operation.list = std::move(list);  // at the first of several attempts
    std::array<iovec, 3> parts;
    std::size_t count = 0;
    parts[count++] = {&operation.header, sizeof operation.header};
    if (operation.list != nullptr) {
      const std::span<const std::byte> bytes = operation.list->bytes();
      parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    if (request.header.controls > 0)
      parts[count++] = {operation.steps.data(), request.header.controls * sizeof(ControlStep)};
    MessageRing* const ring = MessageRing::of(endpoint);
    operation.sent_outside_ring = false;
    if (ring != nullptr && !peer_state.has_unacknowledged_sends()) {
      using enum MessageRing::Release;
      const auto release = operation.request ? kAnswer : kCompletion;
      const ssize_t code = ring->write(endpoint, {parts.data(), count}, operation, release);
      if (code == 0 && operation.request) OperationsInFlight::await_only_reply(operation);
      if (code != -FI_EAGAIN) return code;
    }
    operation.sent_outside_ring = ring != nullptr;
    return send_message(progress_.in_flight().memory(), endpoint, parts.data(), count, operation.slot, operation);
  });
}

// Atomics of the target's adapter, on 64-bit words (fi_atomic(3), fi_verbs(7)).

// `compare` null: a fetch-add; else a compare-and-swap.
Status Fabric::nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand,
                          const std::uint64_t* compare, std::uint64_t* fetched) {
  statistics_.add(RouteKind::kFabric, Counted::kNicAtomic, sizeof *operand);
  return issue(pending, place.peer, compare == nullptr ? "fi_fetch_atomic" : "fi_compare_atomic",
               [&](Operation& operation, fid_ep* endpoint) -> ssize_t {
                 ProviderBuffer result;
                 FabricHandle<fid_mr> none;  // a word goes through a slot
                 const int code =
                     incoming(progress_.in_flight().memory(), operation, fetched, sizeof *fetched, none, result);
                 if (code != 0) return code;
                 operation.swapped = nic_form_->swapped;
                 void* descriptor = nullptr;
                 const auto give = [&](const std::uint64_t* from, std::size_t at) -> void* {
                   if (nic_form_->by_value) return reinterpret_cast<void*>(*from);  // NOLINT(performance-no-int-to-ptr)
                   descriptor = operation.slot->descriptor;
                   return std::memcpy(operation.slot->bytes + at, from, sizeof *from);
                 };
                 void* const first = give(operand, 8);
                 const std::uint64_t address = place.key.base + place.offset;
                 if (compare == nullptr) {
                   return fi_fetch_atomic(endpoint, first, 1, descriptor, result.at, result.descriptor, FI_ADDR_UNSPEC,
                                          address, place.key.key, FI_UINT64, FI_SUM, &operation.provider_context);
                 }
                 void* const second = give(compare, 16);
                 return fi_compare_atomic(endpoint, first, 1, descriptor, second, descriptor, result.at,
                                          result.descriptor, FI_ADDR_UNSPEC, address, place.key.key, FI_UINT64,
                                          FI_CSWAP, &operation.provider_context);
               });
}

Status Fabric::control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                       const std::uint64_t* compare, std::uint64_t* fetched) {
  switch (call) {
    case ControlCall::kFetchAdd: return nic_atomic(pending, place, operand, nullptr, fetched);
    case ControlCall::kCompareAndSwap: return nic_atomic(pending, place, operand, compare, fetched);
    // An adapter reads and writes aligned words whole. No protocol writes a word on which others may use atomics
    // meanwhile (remote_memory.hpp).
    case ControlCall::kRead: return read(pending, place, fetched, *operand * sizeof *fetched);
    case ControlCall::kWrite: return write(pending, place, operand, sizeof *operand);
  }
  return {};
}

// Tries atomics over the adapter on memory of this process, and sets nic_form_. Returns why there are none; empty if
// their results are right.
std::string Fabric::try_nic_atomics() {
  alignas(64) std::uint64_t words[8] = {};
  const Result<Registration> exposed = register_memory(words, sizeof words, random_bits());
  if (!exposed) return exposed.error().text;
  const Place place{insert(address()), exposed.value().key, 0};
  const std::atomic_ref word(words[0]);
  Pending pending;
  Status status;
  const auto take = [&](std::uint64_t operand, const std::uint64_t* compare) {
    std::uint64_t fetched = 0;
    Status issued = nic_atomic(pending, place, &operand, compare, &fetched);
    // This function polls, since waiters poll only the process's endpoint, which this is not yet.
    for (Waiter waiter(waiting_, own_wake_event_); !pending.done();) {
      progress_.poll();
      waiter.pause();
    }
    Status completed = pending.take_error();
    if (status && !issued) status = std::move(issued);
    if (status && !completed) status = std::move(completed);
    return fetched;
  };
  // Values that differ from every address, also if bytes are read in another order.
  constexpr std::uint64_t kFirst = 0x0102030405060708, kAdded = 0x1000000000000001, kOther = 0xF1E2D3C4B5A69788;
  for (const bool by_value : {false, true}) {
    nic_form_ = {by_value, false};
    word.store(kFirst);
    const std::uint64_t fetched = take(kAdded, nullptr);
    // Without any change, no other form is tried: a provider that is right would read a value as an address.
    if (word.load() == kFirst) break;
    if (word.load() != kFirst + kAdded) continue;
    nic_form_->swapped = fetched == __builtin_bswap64(kFirst);
    bool right = fetched == kFirst || nic_form_->swapped;
    const std::uint64_t expected = kFirst + kAdded, unexpected = kFirst;
    right = right && take(kOther, &unexpected) == expected && word.load() == expected;
    right = right && take(kOther, &expected) == expected && word.load() == kOther;
    if (right && status) return {};
    break;
  }
  nic_form_.reset();
  return status ? "a fetch-add or a compare-and-swap on this process's own memory had a wrong result"
                : status.error().text;
}

}  // namespace farside
