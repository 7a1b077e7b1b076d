// SPDX-License-Identifier: BSD-3-Clause
// Opening the endpoint, and issuing operations. What comes of them: fabric_progress.cpp; what peers ask for: fabric_messages.cpp.
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

#include "transport/base/own_thread.hpp"
#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/fabric/fabric_issue.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {
namespace {

constexpr std::size_t kReceives = 32;
constexpr BasicType kControlWord = BasicType::kUint64;

// The provider's name for a type, and for an operation; only for elements that CPUs combine atomically as well, so
// that both ways meet in one atomicity domain.
bool fabric_type(BasicType type, fi_datatype& out) {
  switch (type) {
    case BasicType::kInt8: out = FI_INT8; return true;
    case BasicType::kInt16: out = FI_INT16; return true;
    case BasicType::kInt32: out = FI_INT32; return true;
    case BasicType::kInt64: out = FI_INT64; return true;
    case BasicType::kUint8:
    case BasicType::kByte: out = FI_UINT8; return true;
    case BasicType::kUint16: out = FI_UINT16; return true;
    case BasicType::kUint32: out = FI_UINT32; return true;
    case BasicType::kUint64: out = FI_UINT64; return true;
    case BasicType::kFloat: out = FI_FLOAT; return true;
    case BasicType::kDouble: out = FI_DOUBLE; return true;
    default: return false;
  }
}

bool fabric_op(ReduceOp op, fi_op& out) {
  switch (op) {
    case ReduceOp::kSum: out = FI_SUM; return true;
    case ReduceOp::kProd: out = FI_PROD; return true;
    case ReduceOp::kMin: out = FI_MIN; return true;
    case ReduceOp::kMax: out = FI_MAX; return true;
    case ReduceOp::kLand: out = FI_LAND; return true;
    case ReduceOp::kLor: out = FI_LOR; return true;
    case ReduceOp::kLxor: out = FI_LXOR; return true;
    case ReduceOp::kBand: out = FI_BAND; return true;
    case ReduceOp::kBor: out = FI_BOR; return true;
    case ReduceOp::kBxor: out = FI_BXOR; return true;
    case ReduceOp::kReplace: out = FI_ATOMIC_WRITE; return true;
    case ReduceOp::kNoOp: out = FI_ATOMIC_READ; return true;
    default: return false;
  }
}

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::open(InfoHandle info, const Settings& settings, Progress& progress, Statistics& statistics) {
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(info), settings, progress, statistics));
  if (Status status = fabric->set_up(settings); !status) {
    return Error{status.error().kind, fmt::format("provider {}: {}", fabric->provider(), status.error().text)};
  }
  return fabric;
}

Status Fabric::set_up(const Settings& settings) {
  fid_fabric* fabric = nullptr;
  if (Status s = open_step("fi_fabric", fi_fabric(info_->fabric_attr, &fabric, nullptr), fabric, fabric_); !s) return s;
  fid_domain* domain = nullptr;
  if (Status s = open_step("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr), domain, domain_); !s) return s;

  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  if (Status s = open_step("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr), cq, queue_); !s) return s;

  Result<std::unique_ptr<Endpoints>> endpoints =
      Endpoints::open({info_.get(), fabric, domain, cq}, [this](Peer peer, const std::string& why) { lose_answers(peer, why); });
  if (!endpoints) return endpoints.error();
  endpoints_ = std::move(endpoints.value());
  const int code = fi_control(&cq->fid, FI_GETWAIT, &queue_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the completion queue's file descriptor", code);
  query_atomics();
  orders_atomics_ = farside::orders_atomics(*info_);
  using enum AtomicCall;
  control_atomics_ = atomic_limit(kFetch, ReduceOp::kSum, kControlWord) > 0 && atomic_limit(kFetch, ReduceOp::kNoOp, kControlWord) > 0 &&
                     atomic_limit(kPlain, ReduceOp::kReplace, kControlWord) > 0 &&
                     atomic_limit(kCompare, ReduceOp::kReplace, kControlWord) > 0;
  // Who says that it has atomics, and has not the simplest, is not to be trusted with the rest (net in 1.17).
  if (info_->ep_attr->type == FI_EP_RDM && !control_atomics_) {
    return Error{ErrorKind::kNoRoute, "no fetching sum, read, write or compare-and-swap of 64 bits"};
  }
  orders_messages_behind_writes_ = (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0;
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) local_memory_.begin(domain);
  for (std::size_t i = 0; i < kReceives; ++i) {
    receives_.push_back(std::make_unique<Receive>());
    Receive& receive = *receives_.back();
    if (local_memory_.needed()) {
      const int refused = local_memory_.enroll(receive.bytes.data(), receive.bytes.size(), FI_RECV, receive.registered);
      if (refused != 0) return fabric_error(ErrorKind::kNoMemory, "registering receives (locked memory limit: ulimit -l)", refused);
    }
    if (Status s = post_receive(*receives_.back()); !s) return s;
  }
  stop_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_fd_.valid()) return Error{ErrorKind::kOther, fmt::format("eventfd: {}", std::strerror(errno))};

  if (serves_) {
    if (Status s = start_own_thread(thread_, "farside", [this] { run_progress_thread(); }); !s) return s;
  }
  std::string refused = "the provider has none";
  if (claims_nic_atomics()) {
    refused = settings.nic_atomics ? try_nic_atomics() : "FARSIDE_NIC_ATOMICS=off";
    log(LogLevel::kInfo, "libfabric {}: {}", provider(),
        refused.empty() ? fmt::format("atomics by the adapter, operands by {}", nic_form_ == NicForm::kByValue ? "value" : "address")
                        : fmt::format("no atomics by the adapter: {}", refused));
    control_atomics_ = nic_atomics();
  }
  if (!serves_ && !nic_atomics()) {
    return Error{ErrorKind::kBadSetting, fmt::format("FARSIDE_PROGRESS=none needs atomics by adapters (provider verbs), or nobody would take "
                                                     "locks while a target computes; there are none: {}. Leave FARSIDE_PROGRESS out",
                                                     refused)};
  }
  return {};
}

Fabric::~Fabric() {
  if (thread_.joinable()) {
    finish_answers();
    stop_.store(true, std::memory_order_release);
    away_.ring();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_fd_.get(), &one, sizeof one);
    thread_.join();
  }
  // The endpoints must be gone before the buffers that they may still write to, and those before the domain.
  endpoints_.reset();
  operations_.for_each([](Operation& operation) { operation.registered.reset(); });
  receives_.clear();
  local_memory_ = {};
}

void Fabric::query_atomics() {
  fid_ep* const endpoint = endpoints_->any();
  if (endpoint == nullptr || (info_->caps & FI_ATOMIC) == 0) return;
  for (std::size_t o = 0; o < kReduceOps; ++o) {
    for (std::size_t t = 0; t < kBasicTypes; ++t) {
      const auto op = static_cast<ReduceOp>(o);
      const auto type = static_cast<BasicType>(t);
      fi_datatype datatype{};
      fi_op operation{};
      if (!allowed(op, type) || !fabric_type(type, datatype) || !fabric_op(op, operation)) continue;
      std::size_t count = 0;
      if (op != ReduceOp::kNoOp && fi_atomicvalid(endpoint, datatype, operation, &count) == 0) {
        atomic_limits_[0][o][t] = count;
      }
      if (fi_fetch_atomicvalid(endpoint, datatype, operation, &count) == 0) atomic_limits_[1][o][t] = count;
      if (op == ReduceOp::kReplace &&
          fi_compare_atomicvalid(endpoint, datatype, FI_CSWAP, &count) == 0) {
        atomic_limits_[2][o][t] = count;
      }
    }
  }
}

std::size_t Fabric::atomic_limit(AtomicCall call, ReduceOp op, BasicType type) const {
  return atomic_limits_[static_cast<std::size_t>(call)][static_cast<std::size_t>(op)][static_cast<std::size_t>(type)];
}

Result<Peer> Fabric::insert(const FabricAddress& address) {
  const std::scoped_lock held(mutex_);
  Result<Peer> inserted = endpoints_->insert(address);
  if (!inserted) return inserted;
  const Peer peer = inserted.value();
  if (peer >= contacts_.size()) contacts_.resize(peer + 1);
  contacts_[peer].address = address;
  return peer;
}

Status Fabric::connect(std::span<const Peer> peers) {
  Clock::time_point last_came = Clock::now();
  std::size_t most = 0;
  // All at once, so that not all ranks wait for the same one.
  const auto reached = [&](std::size_t& there) -> ssize_t {
    const std::scoped_lock held(mutex_);
    Endpoints::To to{};
    for (const Peer peer : peers) {
      const ssize_t code = endpoints_->reach(peer, to);
      if (code == 0) ++there;
      if (code != 0 && code != -FI_EAGAIN) return code;
    }
    // What others have begun is to come to its end, too.
    return there == peers.size() && !endpoints_->connecting() ? 0 : -FI_EAGAIN;
  };
  for (Waiter waiter(progress_, own_bell_);; waiter.pause()) {
    std::size_t there = 0;
    const ssize_t code = reached(there);
    if (code == 0) return {};
    if (code != -FI_EAGAIN) return fabric_error(ErrorKind::kPeer, "connecting to a peer", code);
    if (there > most) {
      most = there;
      last_came = Clock::now();
    }
    if (peer_timeout_.count() > 0 && Clock::now() - last_came >= peer_timeout_) return out_of_reach("it cannot be connected to");
    poll();
  }
}

Result<Fabric::Registration> Fabric::expose(void* base, std::size_t bytes) {
  const std::uint64_t mode = info_->domain_attr->mr_mode;
  std::uint64_t wanted = random_bits();
  if (info_->domain_attr->mr_key_size < sizeof wanted) wanted &= (1ULL << (8 * info_->domain_attr->mr_key_size)) - 1;
  fid_mr* region = nullptr;
  const int code = fi_mr_reg(domain_.get(), base, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0, wanted,
                             0, &region, nullptr);
  if (code != 0) {
    return fabric_error(ErrorKind::kNoMemory, fmt::format("registering {} bytes with {} (locked memory limit: ulimit -l)",
                                                          bytes, provider()), code);
  }
  Registration registration;
  registration.region.reset(region);
  registration.key.base = (mode & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<std::uint64_t>(base) : 0;
  registration.key.key = fi_mr_key(region);
  return registration;
}

// What is sent may be asked for again, if the provider had no room: it is copied or registered once.
int Fabric::outgoing(Operation& operation, const void* from, std::size_t bytes, Local& local) {
  local = {const_cast<void*>(from), nullptr};
  if (!local_memory_.needed()) return 0;
  if (bytes <= LocalMemory::kSlotBytes) {
    if (operation.slot == nullptr) {
      operation.slot = local_memory_.take();
      if (operation.slot == nullptr) return -FI_ENOMEM;
      std::memcpy(operation.slot->bytes, from, bytes);
    }
    local = {operation.slot->bytes, operation.slot->descriptor};
    return 0;
  }
  if (operation.registered == nullptr) {
    if (const int code = local_memory_.enroll(from, bytes, FI_WRITE, operation.registered); code != 0) return code;
  }
  local.descriptor = fi_mr_desc(operation.registered.get());
  return 0;
}

int Fabric::incoming(Operation& operation, void* into, std::size_t bytes, Local& local) {
  local = {into, nullptr};
  if (!local_memory_.needed()) return 0;
  if (bytes <= LocalMemory::kSlotBytes) {
    if (operation.slot == nullptr) operation.slot = local_memory_.take();
    if (operation.slot == nullptr) return -FI_ENOMEM;
    operation.into = into;
    operation.into_bytes = bytes;
    local = {operation.slot->bytes, operation.slot->descriptor};
    return 0;
  }
  if (operation.registered == nullptr) {
    if (const int code = local_memory_.enroll(into, bytes, FI_READ, operation.registered); code != 0) return code;
  }
  local.descriptor = fi_mr_desc(operation.registered.get());
  return 0;
}

void Fabric::recycle(Operation& operation) {
  if (operation.slot != nullptr) local_memory_.give_back(std::exchange(operation.slot, nullptr));
  operations_.give_back(operation);
}

Status Fabric::write(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(local);
  std::uint64_t address = place.key.base + place.offset;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, info_->ep_attr->max_msg_size);
    Status status = issue(pending, place.peer, "fi_writemsg", [&](Operation& operation, const Endpoints::To& to) {
      Local buffer;
      if (const int code = outgoing(operation, from, part, buffer); code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{address, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, to.address, &there, 1, &operation.reserved, 0};
      return fi_writemsg(to.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
    if (!status) return status;
    from += part;
    address += part;
    bytes -= part;
  }
  return {};
}

Status Fabric::read(Pending& pending, const Place& place, void* local, std::size_t bytes) {
  auto* into = static_cast<std::byte*>(local);
  std::uint64_t address = place.key.base + place.offset;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, info_->ep_attr->max_msg_size);
    Status status = issue(pending, place.peer, "fi_readmsg", [&](Operation& operation, const Endpoints::To& to) {
      Local buffer;
      if (const int code = incoming(operation, into, part, buffer); code != 0) return static_cast<ssize_t>(code);
      const iovec here{buffer.at, part};
      const fi_rma_iov there{address, part, place.key.key};
      const fi_msg_rma message{&here, &buffer.descriptor, 1, to.address, &there, 1, &operation.reserved, 0};
      return fi_readmsg(to.endpoint, &message, FI_COMPLETION);
    });
    if (!status) return status;
    into += part;
    address += part;
    bytes -= part;
  }
  return {};
}

Status Fabric::atomic(Pending& pending, const Place& place, ReduceOp op, BasicType type, const void* origin,
                      void* fetched, std::size_t count) {
  fi_datatype datatype{};
  fi_op operation_code{};
  fabric_type(type, datatype);
  fabric_op(op, operation_code);
  const std::size_t extent = traits(type).extent;
  const std::size_t limit = atomic_limit(fetched != nullptr ? AtomicCall::kFetch : AtomicCall::kPlain, op, type);
  for (std::size_t done = 0; done < count;) {
    const std::size_t part = std::min(count - done, limit);
    Status status = issue(pending, place.peer, fetched != nullptr ? "fi_fetch_atomicmsg" : "fi_atomicmsg", [&](Operation& operation, const Endpoints::To& to) {
      // FI_ATOMIC_READ reads no operand, but providers look at the vector all the same.
      void* operand = origin != nullptr ? static_cast<std::byte*>(const_cast<void*>(origin)) + done * extent : nullptr;
      const fi_ioc here{operand, part};
      const fi_rma_ioc there{place.key.base + place.offset + done * extent, part, place.key.key};
      const fi_msg_atomic message{&here, nullptr, 1, to.address, &there, 1, datatype, operation_code, &operation.reserved, 0};
      if (fetched == nullptr) {
        return fi_atomicmsg(to.endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
      }
      fi_ioc result{static_cast<std::byte*>(fetched) + done * extent, part};
      return fi_fetch_atomicmsg(to.endpoint, &message, &result, nullptr, 1, FI_COMPLETION);
    });
    if (!status) return status;
    done += part;
  }
  return {};
}

Status Fabric::compare_and_swap(Pending& pending, const Place& place, BasicType type, const void* origin,
                                const void* compare, void* fetched) {
  fi_datatype datatype{};
  fabric_type(type, datatype);
  return issue(pending, place.peer, "fi_compare_atomicmsg", [&](Operation& operation, const Endpoints::To& to) {
    const fi_ioc here{const_cast<void*>(origin), 1};
    const fi_ioc expected{const_cast<void*>(compare), 1};
    fi_ioc result{fetched, 1};
    const fi_rma_ioc there{place.key.base + place.offset, 1, place.key.key};
    const fi_msg_atomic message{&here, nullptr, 1, to.address, &there, 1, datatype, FI_CSWAP, &operation.reserved, 0};
    return fi_compare_atomicmsg(to.endpoint, &message, &expected, nullptr, 1, &result, nullptr, 1, FI_COMPLETION);
  });
}

Status Fabric::carry_out(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::carry_out_and_control(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list,
                                     const ControlStep& step, std::uint64_t* fetched) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  request.header.controls = 1;
  request.steps = {step};
  request.fetched = std::as_writable_bytes(std::span(fetched, 1));
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::carry_out_enclosed(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list,
                                  const ControlStep& opening, const ControlStep& closing, Enclosed& result) {
  Request request;
  request.header.kind = MessageKind::kOperations;
  request.header.controls = kMostControls;
  request.steps = {opening, closing};
  request.enclosed = &result;
  return send_request(pending, place, request, std::move(list));
}

Status Fabric::ask_for_regions(Pending& pending, const AgentPlace& place, std::uint64_t first, std::span<std::byte> page) {
  Request request;
  request.header.kind = MessageKind::kRegions;
  request.header.offset = first;
  request.header.count = static_cast<std::uint32_t>(page.size());
  request.fetched = page;
  return send_request(pending, place, request, nullptr);
}

Status Fabric::send_request(Pending& pending, const AgentPlace& place, const Request& request, std::unique_ptr<OperationList> list) {
  return issue(pending, place.peer, "fi_sendmsg", [&](Operation& operation, const Endpoints::To& to) {
    operation.parts = 2;
    operation.awaits_reply = true;
    operation.fetched = request.fetched.data();
    operation.fetched_bytes = request.fetched.size();
    operation.enclosed = request.enclosed;
    operation.steps = request.steps;
    operation.header = request.header;
    operation.header.sender = place.sender;
    operation.header.region = place.region;
    operation.header.operation = operations_.number(operation);
    operation.header.generation = operation.generation;
    if (list != nullptr) operation.list = std::move(list);  // in the first of several attempts
    std::array<iovec, 3> parts;
    std::size_t count = 0;
    parts[count++] = {&operation.header, sizeof operation.header};
    if (operation.list != nullptr) {
      const std::span<const std::byte> bytes = operation.list->bytes();
      parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    if (request.header.controls > 0) parts[count++] = {operation.steps.data(), request.header.controls * sizeof(ControlStep)};
    return send(to, parts.data(), count, operation.slot, operation);
  });
}

// One message of several parts.
ssize_t Fabric::send(const Endpoints::To& to, const iovec* parts, std::size_t count, LocalMemory::Slot*& slot, Context& context) {
  if (!local_memory_.needed()) {
    const fi_msg message{parts, nullptr, count, to.address, &context.reserved, 0};
    return fi_sendmsg(to.endpoint, &message, FI_COMPLETION);
  }
  if (slot == nullptr) slot = local_memory_.take();
  if (slot == nullptr) return -FI_ENOMEM;
  iovec whole{slot->bytes, 0};
  for (std::size_t i = 0; i < count; ++i) {
    if (parts[i].iov_len > 0) std::memcpy(slot->bytes + whole.iov_len, parts[i].iov_base, parts[i].iov_len);
    whole.iov_len += parts[i].iov_len;
  }
  const fi_msg message{&whole, &slot->descriptor, 1, to.address, &context.reserved, 0};
  return fi_sendmsg(to.endpoint, &message, FI_COMPLETION);
}

std::uint64_t Fabric::publish(Agent::Region region) {
  const std::scoped_lock held(mutex_);
  return agent_.publish(std::move(region));
}

void Fabric::admit(std::uint64_t region, std::vector<Peer> peers, bool always_locked) {
  const std::scoped_lock held(mutex_);
  agent_.admit(region, std::move(peers), always_locked);
}

void Fabric::withdraw(std::uint64_t region) {
  const std::scoped_lock held(mutex_);
  agent_.withdraw(region);
}

}  // namespace farside
