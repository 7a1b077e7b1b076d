// SPDX-License-Identifier: BSD-3-Clause
// Opening the endpoint, and issuing operations. Completions are in fabric_progress.cpp, messages of peers in
// fabric_messages.cpp.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

#include "transport/base/own_thread.hpp"
#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/fabric/fabric_issue.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {
Result<std::unique_ptr<Fabric>> Fabric::open(InfoHandle info, const Settings& settings, Progress& progress,
                                             Statistics& statistics, Resolve resolve) {
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(info), settings, progress, statistics));
  if (Status status = fabric->set_up(settings, std::move(resolve)); !status) {
    return Error{status.error().kind, fmt::format("provider {}: {}", fabric->provider(), status.error().text)};
  }
  return fabric;
}

Status Fabric::set_up(const Settings& settings, Resolve resolve) {
  fid_fabric* fabric = nullptr;
  if (Status s = open_step("fi_fabric", fi_fabric(info_->fabric_attr, &fabric, nullptr), fabric, fabric_); !s) return s;
  fid_domain* domain = nullptr;
  if (Status s = open_step("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr), domain, domain_); !s)
    return s;

  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.size = limits_.completions;
  cq_attr.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  if (Status s = open_step("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr), cq, queue_); !s) return s;

  wake_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd_.valid()) return Error{ErrorKind::kOther, fmt::format("eventfd: {}", std::strerror(errno))};
  Connections::Opening opening;
  opening.by_thread = is_adapter(*info_) || resolve;
  opening.opened = [this] { eventfd_write(wake_fd_.get(), 1); };
  opening.resolve = std::move(resolve);
  Result<std::unique_ptr<Connections>> connections =
      Connections::open({info_.get(), fabric, domain, cq, limits_.most_receives},
                        [this](Peer peer, const std::string& why) { drop_replies(peer, why); }, std::move(opening));
  if (!connections) return connections.error();
  connections_ = std::move(connections.value());
  most_connections_ = asked_connections_;
  share_node(1);
  const int code = fi_control(&cq->fid, FI_GETWAIT, &queue_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the completion queue's file descriptor", code);
  orders_messages_behind_writes_ = (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0;
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) local_memory_.begin(domain);
  limits_.most_receives = std::min(limits_.most_receives, connections_->most_receives());
  if (Status s = add_receives(limits_.receives(0)); !s) return s;
  // Without its thread the endpoint is useless: no route.
  if (Status s = start_own_thread(thread_, "farside", [this] { run_progress_thread(); }); !s) {
    return Error{ErrorKind::kNoRoute, s.error().text};
  }
  if (claims_nic_atomics()) {
    const std::string refused = settings.nic_atomics ? try_nic_atomics() : "FARSIDE_NIC_ATOMICS=off";
    log(LogLevel::kInfo, "libfabric {}: {}", provider(),
        refused.empty() ? fmt::format("atomics by the adapter, operands by {}",
                                      nic_form_ == NicForm::kByValue ? "value" : "address")
                        : fmt::format("no atomics by the adapter: {}", refused));
  }
  return {};
}

// Adds receives for the connections that there are. Without memory for them, peers repeat messages.
void Fabric::follow_connections() {
  const std::size_t wanted = limits_.receives(connections_->count());
  if (wanted <= receives_.size()) return;
  if (Status added = add_receives(wanted - receives_.size()); !added) {
    limits_.most_receives = receives_.size();
    log(LogLevel::kInfo, "{} receives for {} connections: {}", receives_.size(), connections_->count(),
        added.error().text);
  }
}

Status Fabric::add_receives(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    auto receive = std::make_unique<Receive>();
    if (local_memory_.needed()) {
      const int refused =
          local_memory_.enroll(receive->bytes.data(), receive->bytes.size(), FI_RECV, receive->registered);
      if (refused != 0)
        return fabric_error(ErrorKind::kNoMemory, "registering receives (locked memory limit: ulimit -l)", refused);
    }
    if (Status s = post_receive(*receive); !s) return s;
    receives_.push_back(std::move(receive));
  }
  return {};
}

Fabric::~Fabric() {
  if (thread_.joinable()) {
    finish_answers();
    stop_.store(true, std::memory_order_release);
    back_off_event_.wake();
    eventfd_write(wake_fd_.get(), 1);
    thread_.join();
  }
  // The endpoints are closed before the buffers that they may still write to, and the buffers' registrations before
  // the domain.
  connections_.reset();
  operations_.for_each([](Operation& operation) { operation.registered.reset(); });
  receives_.clear();
  local_memory_ = {};
}

Peer Fabric::insert(const FabricAddress& address) {
  const std::scoped_lock held(mutex_);
  return connections_->insert(address);
}

void Fabric::share_node(std::size_t processes) {
  const std::scoped_lock held(mutex_);
  if (processes <= node_processes_) return;
  node_processes_ = processes;
  const std::size_t most = connections_->most_connections(processes);
  if (most == 0 || most >= most_connections_) return;
  most_connections_ = most;
  log(LogLevel::kInfo, "FARSIDE_CONNECTIONS={}, but {}, shared by {} processes of the node, admit {} connections",
      asked_connections_, is_adapter(*info_) ? "the adapter's queue pairs" : "descriptors (ulimit -Hn, fs.file-max)",
      processes, most);
  // The progress thread may sleep while there are too many connections now.
  if (too_many_connections()) eventfd_write(wake_fd_.get(), 1);
}

void Fabric::limit_silence(std::optional<std::chrono::seconds> limit) {
  const bool shorter = limit && (asked_timeout_.count() == 0 || *limit < asked_timeout_);
  peer_timeout_.store(shorter ? *limit : asked_timeout_, std::memory_order_relaxed);
}

std::size_t Fabric::most_connections() {
  const std::scoped_lock held(mutex_);
  return most_connections_;
}

std::size_t Fabric::node_processes() {
  const std::scoped_lock held(mutex_);
  return node_processes_;
}

Result<Fabric::Registration> Fabric::expose(void* base, std::size_t bytes, std::uint64_t wanted) {
  const std::uint64_t mode = info_->domain_attr->mr_mode;
  if (info_->domain_attr->mr_key_size < sizeof wanted) wanted &= (1ULL << (8 * info_->domain_attr->mr_key_size)) - 1;
  fid_mr* region = nullptr;
  const int code = fi_mr_reg(domain_.get(), base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                             wanted, 0, &region, nullptr);
  if (code != 0) {
    return fabric_error(ErrorKind::kNoMemory,
                        fmt::format("registering {} bytes with {} (locked memory limit: ulimit -l)", bytes, provider()),
                        code);
  }
  Registration registration;
  registration.region.reset(region);
  registration.key.base = (mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uint64_t>(base) : 0;
  registration.key.key = fi_mr_key(region);
  return registration;
}

bool Fabric::keys_are_chosen() const {
  const fi_domain_attr& domain = *info_->domain_attr;
  return (domain.mr_mode & (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR)) == 0 && domain.mr_key_size >= sizeof(std::uint64_t);
}

// May be called again for an operation if the provider had no room: the data are copied only once. `registered`: the
// registration of a large buffer, which the operation takes.
int Fabric::outgoing(Operation& operation, const void* from, std::size_t bytes, FabricHandle<fid_mr>& registered,
                     Local& local) {
  if (!local_memory_.needed()) {
    local = {const_cast<void*>(operation.operands.take(from, bytes)), nullptr};
    return 0;
  }
  if (bytes > LocalMemory::kSlotBytes) {
    if (registered != nullptr) operation.registered = std::move(registered);
    local = {const_cast<void*>(from), fi_mr_desc(operation.registered.get())};
    return 0;
  }
  if (operation.slot == nullptr) {
    if (const int code = local_memory_.take(true, operation.slot); code != 0) return code;
    std::memcpy(operation.slot->bytes, from, bytes);
  }
  local = {operation.slot->bytes, operation.slot->descriptor};
  return 0;
}

int Fabric::incoming(Operation& operation, void* into, std::size_t bytes, FabricHandle<fid_mr>& registered,
                     Local& local) {
  local = {into, nullptr};
  if (!local_memory_.needed()) return 0;
  if (bytes > LocalMemory::kSlotBytes) {
    if (registered != nullptr) operation.registered = std::move(registered);
    local.descriptor = fi_mr_desc(operation.registered.get());
    return 0;
  }
  if (operation.slot == nullptr) {
    if (const int code = local_memory_.take(true, operation.slot); code != 0) return code;
  }
  operation.into = into;
  operation.into_bytes = bytes;
  local = {operation.slot->bytes, operation.slot->descriptor};
  return 0;
}

// Registers a large local buffer, without the mutex. Waits until operations complete, if too many are registered.
// Returns null if it cannot be registered.
FabricHandle<fid_mr> Fabric::register_large(const void* base, std::size_t bytes, std::uint64_t access) {
  for (Waiter waiter(progress_, own_wake_event_);; waiter.pause()) {
    bool moved = false;
    {
      const std::scoped_lock held(mutex_);
      if (local_memory_.begin_large()) break;
      moved = drain();
    }
    if (moved) wake_listeners();
  }
  FabricHandle<fid_mr> registered;
  const int code = local_memory_.enroll(base, bytes, access, registered);
  if (code != 0) {
    {
      const std::scoped_lock held(mutex_);
      local_memory_.end_large(registered);
    }
    log(LogLevel::kInfo, "{}; it is copied in parts",
        fabric_error(ErrorKind::kNoMemory, fmt::format("registering {} bytes of an operand", bytes), code).text);
  }
  return registered;
}

// Issues a write or a read in parts: of the provider's largest size, or of a slot's where the local buffer must be
// registered and cannot be. issue_part(offset, bytes, registered) may take the registration.
template <class IssuePart>
Status Fabric::issue_parts(const void* local, std::size_t bytes, std::uint64_t access, IssuePart&& issue_part) {
  std::size_t most = info_->ep_attr->max_msg_size;
  for (std::size_t offset = 0; offset < bytes;) {
    const std::size_t part = std::min(bytes - offset, most);
    FabricHandle<fid_mr> registered;
    if (local_memory_.needed() && part > LocalMemory::kSlotBytes) {
      registered = register_large(static_cast<const std::byte*>(local) + offset, part, access);
      if (registered == nullptr) {
        most = LocalMemory::kSlotBytes;
        continue;
      }
    }
    Status issued = issue_part(offset, part, registered);
    if (registered != nullptr) {
      const std::scoped_lock held(mutex_);
      local_memory_.end_large(registered);
    }
    if (!issued) return issued;
    offset += part;
  }
  return {};
}

void Fabric::recycle(Operation& operation) {
  if (operation.slot != nullptr) local_memory_.release(std::exchange(operation.slot, nullptr));
  if (operation.registered != nullptr) local_memory_.end_large(operation.registered);
  operations_.release(operation);
}

Status Fabric::write(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
  return issue_parts(local, bytes, FI_WRITE, [&](std::size_t offset, std::size_t part, FabricHandle<fid_mr>& mr) {
    return issue(pending, place.peer, "fi_writemsg", [&](Operation& operation, fid_ep* endpoint) {
      Local buffer;
      const int code = outgoing(operation, static_cast<const std::byte*>(local) + offset, part, mr, buffer);
      if (code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{place.key.base + place.offset + offset, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, FI_ADDR_UNSPEC, &there, 1, &operation.reserved, 0};
      return fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  });
}

Status Fabric::read(Pending& pending, const Place& place, void* local, std::size_t bytes) {
  return issue_parts(local, bytes, FI_READ, [&](std::size_t offset, std::size_t part, FabricHandle<fid_mr>& mr) {
    return issue(pending, place.peer, "fi_readmsg", [&](Operation& operation, fid_ep* endpoint) {
      Local buffer;
      const int code = incoming(operation, static_cast<std::byte*>(local) + offset, part, mr, buffer);
      if (code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{place.key.base + place.offset + offset, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, FI_ADDR_UNSPEC, &there, 1, &operation.reserved, 0};
      return fi_readmsg(endpoint, &message, FI_COMPLETION);
    });
  });
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
  request.fetched = std::as_writable_bytes(std::span(fetched, 1));
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
    PeerState& peer_state = peer_states_.of(place.peer);
    if (peer_state.requests >= limits_.requests_per_peer) return -FI_EAGAIN;
    operation.request = true;
    operation.parts = 2;
    operation.awaits_reply = true;
    operation.fetched = request.fetched.data();
    operation.fetched_bytes = request.fetched.size();
    operation.locked_result = request.locked_result;
    operation.steps = request.steps;
    operation.header = request.header;
    operation.header.sender = place.sender;
    operation.header.identity = address().identity;
    operation.header.region = place.region;
    operation.header.operation = operations_.number(operation);
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
    const ssize_t code = send(endpoint, parts.data(), count, operation.slot, operation);
    if (code == 0) ++peer_state.requests;
    return code;
  });
}

// Sends one message of several parts.
ssize_t Fabric::send(fid_ep* endpoint, const iovec* parts, std::size_t count, LocalMemory::Slot*& slot,
                     Context& context) {
  if (!local_memory_.needed()) {
    const fi_msg message{parts, nullptr, count, FI_ADDR_UNSPEC, &context.reserved, 0};
    return fi_sendmsg(endpoint, &message, FI_COMPLETION);
  }
  if (slot == nullptr) {
    if (const int code = local_memory_.take(context.kind == Context::Kind::kOperation, slot); code != 0) return code;
  }
  iovec whole{slot->bytes, 0};
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > 0) std::memcpy(slot->bytes + whole.iov_len, parts[i].iov_base, parts[i].iov_len);
    whole.iov_len += parts[i].iov_len;
  }
  const fi_msg message{&whole, &slot->descriptor, 1, FI_ADDR_UNSPEC, &context.reserved, 0};
  return fi_sendmsg(endpoint, &message, FI_COMPLETION);
}

bool Fabric::publish(std::uint64_t id, const MessageHandler::Region& region) {
  const std::scoped_lock held(mutex_);
  return handler_.publish(id, region);
}

void Fabric::withdraw(std::uint64_t region) {
  const std::scoped_lock held(mutex_);
  handler_.withdraw(region);
}

}  // namespace farside
