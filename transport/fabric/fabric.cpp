// SPDX-License-Identifier: BSD-3-Clause
#include "transport/fabric/fabric.hpp"

#include <pthread.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/provider.hpp"

namespace farside {
namespace {

constexpr std::size_t kReceives = 32;
constexpr std::chrono::milliseconds kSafetyNet{250};       // the longest sleep of the progress thread
constexpr std::chrono::milliseconds kTryAgain{1};          // while answers are unsent
// How long the progress thread stays away while application threads issue and poll: at first, and at most. When they
// have left to compute, what arrives may wait that long once. (Fetch-add over loopback on 2 busy cores: 58 us when the
// thread woke for each completion and looked for 50 us of peace then, 35 us so.)
constexpr std::chrono::microseconds kStayAway{50}, kStayAwayLongest{200};

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

template <class T>
Status open_step(const char* what, int code, T* const& opened, FabricHandle<T>& out) {
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, what, code);
  out.reset(opened);
  return {};
}

}  // namespace

Result<std::unique_ptr<Fabric>> Fabric::open(const Settings& settings, Progress& progress, Statistics& statistics) {
  ask_for_small_buffers();
  Result<InfoHandle> info = choose_provider(settings.provider);
  if (!info) return info.error();
  std::unique_ptr<Fabric> fabric(new Fabric(std::move(info.value()), std::chrono::seconds(settings.peer_timeout), progress,
                                            statistics));
  if (Status status = fabric->set_up(); !status) {
    return Error{status.error().kind, fmt::format("provider {}: {}", fabric->provider(), status.error().text)};
  }
  return fabric;
}

Status Fabric::set_up() {
  fid_fabric* fabric = nullptr;
  if (Status s = open_step("fi_fabric", fi_fabric(info_->fabric_attr, &fabric, nullptr), fabric, fabric_); !s) return s;
  fid_domain* domain = nullptr;
  if (Status s = open_step("fi_domain", fi_domain(fabric, info_.get(), &domain, nullptr), domain, domain_); !s) return s;

  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  fid_av* av = nullptr;
  if (Status s = open_step("fi_av_open", fi_av_open(domain, &av_attr, &av, nullptr), av, address_vector_); !s) return s;

  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  if (Status s = open_step("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, nullptr), cq, queue_); !s) return s;

  fid_ep* endpoint = nullptr;
  const int opened = fi_endpoint(domain, info_.get(), &endpoint, nullptr);
  if (Status s = open_step("fi_endpoint", opened, endpoint, endpoint_); !s) return s;
  int code = fi_ep_bind(endpoint, &av->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0) code = fi_enable(endpoint);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "enabling the endpoint", code);

  address_.size = address_.bytes.size();
  code = fi_getname(&endpoint->fid, address_.bytes.data(), &address_.size);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "fi_getname", code);
  code = fi_control(&cq->fid, FI_GETWAIT, &queue_fd_);
  if (code != 0) return fabric_error(ErrorKind::kNoRoute, "the completion queue's file descriptor", code);
  query_atomics();
  orders_atomics_ = farside::orders_atomics(*info_);
  // Control words need these (Space::control); without one, Fabric::atomic would not end.
  if (atomic_limit(AtomicCall::kFetch, ReduceOp::kSum, BasicType::kUint64) == 0 ||
      atomic_limit(AtomicCall::kFetch, ReduceOp::kNoOp, BasicType::kUint64) == 0 ||
      atomic_limit(AtomicCall::kPlain, ReduceOp::kReplace, BasicType::kUint64) == 0 ||
      atomic_limit(AtomicCall::kCompare, ReduceOp::kReplace, BasicType::kUint64) == 0) {
    return Error{ErrorKind::kNoRoute, "no fetching sum, read, write or compare-and-swap of 64 bits"};
  }

  for (std::size_t i = 0; i < kReceives; ++i) {
    receives_.push_back(std::make_unique<Receive>());
    if (Status s = post_receive(*receives_.back()); !s) return s;
  }
  stop_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_fd_.valid()) return Error{ErrorKind::kOther, fmt::format("eventfd: {}", std::strerror(errno))};

  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string refused;
  try {
    thread_ = std::thread([this] { run_progress_thread(); });
  } catch (const std::system_error& error) {
    refused = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread_.joinable()) return Error{ErrorKind::kOther, fmt::format("no progress thread: {}", refused)};
  pthread_setname_np(thread_.native_handle(), "farside");
  return {};
}

Fabric::~Fabric() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release);
    away_.ring();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_fd_.get(), &one, sizeof one);
    thread_.join();
  }
  // The endpoint must be gone before the buffers that it may still write to.
  endpoint_.reset();
}

void Fabric::query_atomics() {
  for (std::size_t o = 0; o < kReduceOps; ++o) {
    for (std::size_t t = 0; t < kBasicTypes; ++t) {
      const auto op = static_cast<ReduceOp>(o);
      const auto type = static_cast<BasicType>(t);
      fi_datatype datatype{};
      fi_op operation{};
      if (!allowed(op, type) || !fabric_type(type, datatype) || !fabric_op(op, operation)) continue;
      std::size_t count = 0;
      if (op != ReduceOp::kNoOp && fi_atomicvalid(endpoint_.get(), datatype, operation, &count) == 0) {
        atomic_limits_[0][o][t] = count;
      }
      if (fi_fetch_atomicvalid(endpoint_.get(), datatype, operation, &count) == 0) atomic_limits_[1][o][t] = count;
      if (op == ReduceOp::kReplace &&
          fi_compare_atomicvalid(endpoint_.get(), datatype, FI_CSWAP, &count) == 0) {
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
  fi_addr_t peer = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(address_vector_.get(), address.bytes.data(), 1, &peer, 0, nullptr);
  if (inserted != 1) return fabric_error(ErrorKind::kNoRoute, "fi_av_insert", inserted < 0 ? inserted : -FI_EOTHER);
  if (peer >= contacts_.size()) contacts_.resize(peer + 1);
  return peer;
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

// Issues one operation, again while the provider asks for it (queue full, connection being made) and the peer is not
// given up.
template <class Issue>
Status Fabric::issue(Pending& pending, Peer peer, const char* what, Issue&& call) {
  Operation* operation = nullptr;
  std::uint32_t given_up = 0;
  for (Waiter waiter(progress_, own_bell_);; waiter.pause()) {
    polls_.fetch_add(1, std::memory_order_relaxed);  // a sent message alone wakes the progress thread
    const std::unique_lock held(mutex_);
    Contact& contact = contacts_[peer];
    if (operation == nullptr) {
      operation = &operations_.take();
      operation->parts = 1;
      given_up = contact.given_up;
      if (contact.under_way++ == 0) contact.quiet_since = Clock::now();
    }
    const ssize_t code = call(*operation);
    if (code == 0) {
      // Nobody can complete it before the mutex is released.
      operation->pending = &pending;
      operation->peer = peer;
      pending.issued();
      return {};
    }
    if (code == -FI_EAGAIN && contact.given_up == given_up) continue;
    --contact.under_way;
    operations_.give_back(*operation);
    if (code == -FI_EAGAIN) {
      return Error{ErrorKind::kPeer, fmt::format("{}: the peer is out of reach for {} s (FARSIDE_PEER_TIMEOUT)", what,
                                                 peer_timeout_.count())};
    }
    return fabric_error(ErrorKind::kPeer, what, code);
  }
}

Status Fabric::write(Pending& pending, const Place& place, const void* local, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(local);
  std::uint64_t address = place.key.base + place.offset;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, info_->ep_attr->max_msg_size);
    Status status = issue(pending, place.peer, "fi_writemsg", [&](Operation& operation) {
      const iovec here{const_cast<std::byte*>(from), part};
      const fi_rma_iov there{address, part, place.key.key};
      const fi_msg_rma message{&here, nullptr, 1, place.peer, &there, 1, &operation.reserved, 0};
      return fi_writemsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
    if (!status) return status;
    from += part;
    address += part;
    bytes -= part;
  }
  return {};
}

Status Fabric::read(Pending& pending, const Place& place, void* local, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(local);
  std::uint64_t address = place.key.base + place.offset;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, info_->ep_attr->max_msg_size);
    Status status = issue(pending, place.peer, "fi_readmsg", [&](Operation& operation) {
      const iovec here{to, part};
      const fi_rma_iov there{address, part, place.key.key};
      const fi_msg_rma message{&here, nullptr, 1, place.peer, &there, 1, &operation.reserved, 0};
      return fi_readmsg(endpoint_.get(), &message, FI_COMPLETION);
    });
    if (!status) return status;
    to += part;
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
    Status status = issue(pending, place.peer, fetched != nullptr ? "fi_fetch_atomicmsg" : "fi_atomicmsg", [&](Operation& operation) {
      // FI_ATOMIC_READ reads no operand, but providers look at the vector all the same.
      void* operand = origin != nullptr ? static_cast<std::byte*>(const_cast<void*>(origin)) + done * extent : nullptr;
      const fi_ioc here{operand, part};
      const fi_rma_ioc there{place.key.base + place.offset + done * extent, part, place.key.key};
      const fi_msg_atomic message{&here, nullptr, 1, place.peer, &there, 1, datatype, operation_code, &operation.reserved, 0};
      if (fetched == nullptr) {
        return fi_atomicmsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
      }
      fi_ioc result{static_cast<std::byte*>(fetched) + done * extent, part};
      return fi_fetch_atomicmsg(endpoint_.get(), &message, &result, nullptr, 1, FI_COMPLETION);
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
  return issue(pending, place.peer, "fi_compare_atomicmsg", [&](Operation& operation) {
    const fi_ioc here{const_cast<void*>(origin), 1};
    const fi_ioc expected{const_cast<void*>(compare), 1};
    fi_ioc result{fetched, 1};
    const fi_rma_ioc there{place.key.base + place.offset, 1, place.key.key};
    const fi_msg_atomic message{&here, nullptr, 1, place.peer, &there, 1, datatype, FI_CSWAP, &operation.reserved, 0};
    return fi_compare_atomicmsg(endpoint_.get(), &message, &expected, nullptr, 1, &result, nullptr, 1, FI_COMPLETION);
  });
}

Status Fabric::carry_out(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list) {
  RequestHeader header{};
  header.kind = MessageKind::kOperations;
  return send_request(pending, place, header, std::move(list), {}, {});
}

Status Fabric::carry_out_and_add(Pending& pending, const AgentPlace& place, std::unique_ptr<OperationList> list,
                                 const ControlAdd& add, std::uint64_t* fetched) {
  RequestHeader header{};
  header.kind = MessageKind::kOperations;
  header.adds = 1;
  return send_request(pending, place, header, std::move(list), add, std::as_writable_bytes(std::span(fetched, 1)));
}

Status Fabric::ask_for_regions(Pending& pending, const AgentPlace& place, std::uint64_t first, std::span<std::byte> page) {
  RequestHeader header{};
  header.kind = MessageKind::kRegions;
  header.offset = first;
  header.count = static_cast<std::uint32_t>(page.size());
  return send_request(pending, place, header, nullptr, {}, page);
}

Status Fabric::send_request(Pending& pending, const AgentPlace& place, const RequestHeader& header,
                            std::unique_ptr<OperationList> list, const ControlAdd& add, std::span<std::byte> fetched) {
  return issue(pending, place.peer, "fi_sendmsg", [&](Operation& operation) {
    operation.parts = 2;
    operation.awaits_reply = true;
    operation.fetched = fetched.data();
    operation.fetched_bytes = fetched.size();
    operation.add = add;
    operation.header = header;
    operation.header.sender = place.sender;
    operation.header.region = place.region;
    operation.header.operation = operation.index;
    operation.header.generation = operation.generation;
    if (list != nullptr) operation.list = std::move(list);  // in the first of several attempts
    std::array<iovec, 3> parts;
    std::size_t count = 0;
    parts[count++] = {&operation.header, sizeof operation.header};
    if (operation.list != nullptr) {
      const std::span<const std::byte> bytes = operation.list->bytes();
      parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    if (header.adds != 0) parts[count++] = {&operation.add, sizeof operation.add};
    const fi_msg message{parts.data(), nullptr, count, place.peer, &operation.reserved, 0};
    return fi_sendmsg(endpoint_.get(), &message, FI_COMPLETION);
  });
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

Status Fabric::post_receive(Receive& buffer) {
  ssize_t code = 0;
  do {
    code = fi_recv(endpoint_.get(), buffer.bytes.data(), buffer.bytes.size(), nullptr, FI_ADDR_UNSPEC, &buffer.reserved);
  } while (code == -FI_EAGAIN);
  return code == 0 ? Status() : Status(fabric_error(ErrorKind::kOther, "fi_recv", code));
}

void Fabric::poll() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  // Whoever holds the mutex moves things already.
  bool moved = false;
  if (const std::unique_lock held(mutex_, std::try_to_lock); held) moved = drain();
  // What one thread takes off the queue may be what another sleeps for.
  if (moved) ring_listeners();
}

void Fabric::listen(Doorbell& bell) {
  const std::scoped_lock held(listeners_mutex_);
  listeners_.push_back(&bell);
  // Sequentially consistent, as in Doorbell: either the progress thread sees the listener, or the listener's next look
  // sees what the thread has done.
  listening_.fetch_add(1, std::memory_order_seq_cst);
  away_.ring_if_armed();
}

void Fabric::stop_listening(Doorbell& bell) {
  const std::scoped_lock held(listeners_mutex_);
  const auto found = std::find(listeners_.begin(), listeners_.end(), &bell);
  if (found == listeners_.end()) return;  // it began to wait before the endpoint was opened
  listeners_.erase(found);
  listening_.fetch_sub(1, std::memory_order_relaxed);
}

void Fabric::ring_listeners() {
  if (listening_.load(std::memory_order_seq_cst) == 0) return;
  const std::scoped_lock held(listeners_mutex_);
  for (Doorbell* bell : listeners_) bell->ring();
}

// Takes everything off the completion queue; whether there was anything. Called with the mutex held.
bool Fabric::drain() {
  std::array<fi_cq_msg_entry, 32> entries;
  bool any = false;
  while (true) {
    const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (count == -FI_EAVAIL) {
      complete_with_error();
      any = true;
      continue;
    }
    if (count <= 0) break;
    any = true;
    for (ssize_t i = 0; i < count; ++i) complete(entries[static_cast<std::size_t>(i)]);
    if (static_cast<std::size_t>(count) < entries.size()) break;
  }
  if (!unsent_.empty()) send_replies();
  return any;
}

// The last the provider says of an operation. Whoever waits for `pending` may be gone right after.
void Fabric::finish(Operation& operation) {
  Pending* pending = operation.pending;
  if (pending != nullptr) {
    Contact& contact = contacts_[operation.peer];
    --contact.under_way;
    ++contact.completed;
  }
  operations_.give_back(operation);
  if (pending != nullptr) pending->completed();
}

void Fabric::receive_again(Receive& buffer) {
  if (Status status = post_receive(buffer); !status) log(LogLevel::kError, "{}", status.error().text);
}

void Fabric::complete(const fi_cq_msg_entry& entry) {
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  if (context == nullptr) return;
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      if (--operation.parts == 0) finish(operation);
      return;
    }
    case Context::Kind::kReceive:
      receive(static_cast<Receive&>(*context), entry.len);
      receive_again(static_cast<Receive&>(*context));
      return;
    case Context::Kind::kReply:
      spare_.emplace_back(static_cast<Reply*>(context));
      return;
  }
}

void Fabric::complete_with_error() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return;
  auto* context = reinterpret_cast<Context*>(entry.op_context);
  const std::string text = fmt::format("{}: {}", fi_strerror(entry.err),
                                       fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, nullptr, 0));
  if (context == nullptr) {
    log(LogLevel::kError, "libfabric {}: {}", provider(), text);
    return;
  }
  switch (context->kind) {
    case Context::Kind::kOperation: {
      auto& operation = static_cast<Operation&>(*context);
      if (operation.pending != nullptr) {
        operation.pending->failed(Error{ErrorKind::kPeer, fmt::format("libfabric {}: {}", provider(), text)});
      }
      // A request whose send failed gets no reply.
      finish(operation);
      return;
    }
    case Context::Kind::kReceive:
      if (entry.err == FI_ECANCELED) return;
      log(LogLevel::kWarn, "a message was refused: {}", text);
      receive_again(static_cast<Receive&>(*context));
      return;
    case Context::Kind::kReply:
      log(LogLevel::kWarn, "an answer to a peer could not be delivered: {}", text);
      spare_.emplace_back(static_cast<Reply*>(context));
      return;
  }
}

void Fabric::receive(Receive& buffer, std::size_t bytes) {
  const std::span<const std::byte> message(buffer.bytes.data(), bytes);
  if (bytes == 0) return;
  const auto kind = static_cast<MessageKind>(message[0]);
  if (kind == MessageKind::kReply) return take_reply(message);
  if (kind == MessageKind::kProbe) return;
  if (kind != MessageKind::kOperations && kind != MessageKind::kRegions) {
    log(LogLevel::kWarn, "a message of unknown kind was dropped");
    return;
  }
  const TraceServed served(RouteKind::kFabric, bytes);
  Agent::Answer answer = agent_.execute(message);
  if (answer.refused != nullptr) log(LogLevel::kWarn, "a request to the agent was refused: {}", answer.refused);
  if (!answer.known_sender) return;
  statistics_.add(RouteKind::kFabric, Counted::kAgent, bytes);
  std::unique_ptr<Reply> reply = take_reply_buffer();
  reply->refused_since = {};
  reply->peer = answer.peer;
  reply->header = answer.header;
  reply->fetched = std::move(answer.fetched);
  unsent_.push_back(std::move(reply));
  send_replies();
}

std::unique_ptr<Reply> Fabric::take_reply_buffer() {
  if (spare_.empty()) return std::make_unique<Reply>();
  std::unique_ptr<Reply> reply = std::move(spare_.back());
  spare_.pop_back();
  return reply;
}

ssize_t Fabric::send(Reply& reply) {
  const iovec parts[] = {{&reply.header, sizeof reply.header}, {reply.fetched.data(), reply.fetched.size()}};
  const fi_msg message{parts, nullptr, reply.fetched.empty() ? 1U : 2U, reply.peer, &reply.reserved, 0};
  return fi_sendmsg(endpoint_.get(), &message, FI_COMPLETION);
}

void Fabric::send_replies() {
  // What one peer does not take must not hold up the others.
  std::optional<Peer> refused;
  for (auto next = unsent_.begin(); next != unsent_.end();) {
    Reply& reply = **next;
    if (reply.peer == refused) {
      ++next;
      continue;
    }
    const ssize_t code = send(reply);
    if (code == -FI_EAGAIN) {  // again at the next poll
      refused = reply.peer;
      const Clock::time_point now = Clock::now();
      if (reply.refused_since == Clock::time_point{}) reply.refused_since = now;
      const bool patient = peer_timeout_.count() == 0 || now - reply.refused_since < peer_timeout_;
      if (patient) {
        ++next;
        continue;
      }
    }
    if (code == 0) {
      next->release();  // the provider has it until its completion: NOLINT(bugprone-unused-return-value)
    } else {
      log(LogLevel::kWarn, "{}", fabric_error(ErrorKind::kPeer, "an answer to a peer", code).text);
    }
    next = unsent_.erase(next);
  }
}

// Gives up peers that stay out of reach. A peer from which nothing has come for half the time is sent a probe: whether it
// answers does not matter, it may be stopped; but one that has died cannot be sent anything. Called with the mutex held.
void Fabric::look_after_peers() {
  const Clock::time_point now = Clock::now();
  for (Peer peer = 0; peer < contacts_.size(); ++peer) {
    Contact& contact = contacts_[peer];
    if (contact.under_way == 0) continue;
    if (contact.completed != contact.completed_then) {
      contact.completed_then = contact.completed;
      contact.quiet_since = now;
    }
    if (now - contact.quiet_since < peer_timeout_ / 2.0) continue;
    std::unique_ptr<Reply> probe = take_reply_buffer();
    probe->peer = peer;
    probe->header = {};
    probe->header.kind = MessageKind::kProbe;
    probe->fetched.clear();
    const ssize_t code = send(*probe);
    if (code == 0) {
      probe.release();  // until its completion: NOLINT(bugprone-unused-return-value)
      contact.quiet_since = now;
      continue;
    }
    spare_.push_back(std::move(probe));
    if (code != -FI_EAGAIN || now - contact.quiet_since >= peer_timeout_) {
      give_up(peer, fabric_error(ErrorKind::kPeer, "a probe", code).text);
    }
  }
}

// What the provider still has is forgotten, not reused.
void Fabric::give_up(Peer peer, const std::string& why) {
  Contact& contact = contacts_[peer];
  ++contact.given_up;
  contact.quiet_since = Clock::now();
  operations_.for_each([&](Operation& operation) {
    if (operation.pending == nullptr || operation.peer != peer) return;
    Pending& pending = *std::exchange(operation.pending, nullptr);
    --contact.under_way;
    // Of a request that was sent nothing more will come.
    if (operation.awaits_reply && --operation.parts == 0) operations_.give_back(operation);
    operation.awaits_reply = false;
    pending.failed(Error{ErrorKind::kPeer, fmt::format("libfabric {}: the peer is out of reach for {} s "
                                                       "(FARSIDE_PEER_TIMEOUT): {}", provider(), peer_timeout_.count(),
                                                       why)});
    pending.completed();
  });
}

void Fabric::take_reply(std::span<const std::byte> message) {
  ReplyHeader header;
  if (message.size() < sizeof header) return;
  std::memcpy(&header, message.data(), sizeof header);
  Operation* operation = operations_.find(header.operation, header.generation);
  const std::span<const std::byte> fetched = message.subspan(sizeof header);
  if (operation == nullptr) {
    log(LogLevel::kWarn, "an answer to no question was dropped");
    return;
  }
  const std::size_t listed = operation->list != nullptr ? operation->list->fetched_bytes() : 0;
  if (header.status != ReplyStatus::kDone) {
    operation->pending->failed(Error{ErrorKind::kRange, "the target's agent refused the request"});
  } else if (fetched.size() != listed + operation->fetched_bytes) {
    operation->pending->failed(Error{ErrorKind::kPeer, "the target's agent answered with a wrong length"});
  } else {
    if (listed > 0) operation->list->deliver(fetched);
    if (operation->fetched_bytes > 0) std::memcpy(operation->fetched, fetched.data() + listed, operation->fetched_bytes);
  }
  operation->awaits_reply = false;
  if (--operation->parts == 0) finish(*operation);
}

void Fabric::run_progress_thread() {
  fid* const waited[] = {&queue_->fid};
  std::uint32_t last_polls = polls_.load(std::memory_order_relaxed);
  auto stay_away = kStayAway;
  // An application thread that issues and polls does the work sooner than this thread could, which would only take the
  // provider's locks from it: fi_trywait alone makes progress.
  const auto others_poll = [&] {
    const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
    if (polls == last_polls || listening_.load(std::memory_order_relaxed) != 0) {
      last_polls = polls;
      stay_away = kStayAway;
      return false;
    }
    last_polls = polls;
    const std::uint32_t seen = away_.arm();
    if (listening_.load(std::memory_order_seq_cst) == 0 && !stop_.load(std::memory_order_acquire)) {
      away_.sleep(seen, stay_away);
    }
    away_.disarm();
    stay_away = std::min(2 * stay_away, kStayAwayLongest);
    return true;
  };
  auto limit = kSafetyNet;
  Clock::time_point look_again = Clock::now() + kSafetyNet;
  while (!stop_.load(std::memory_order_acquire)) {
    if (peer_timeout_.count() > 0 && Clock::now() >= look_again) {
      const std::scoped_lock held(mutex_);
      look_after_peers();
      look_again = Clock::now() + kSafetyNet;
    }
    if (others_poll()) continue;
    {
      const std::scoped_lock held(mutex_);
      drain();
      // Answers that the provider would not take yet are offered again soon.
      limit = unsent_.empty() ? kSafetyNet : kTryAgain;
    }
    // Also when nothing completed here: a peer may have written into this process's memory.
    ring_listeners();
    if (fi_trywait(fabric_.get(), const_cast<fid**>(waited), 1) != FI_SUCCESS) continue;
    // It makes progress as well: what it has executed leaves no other trace.
    ring_listeners();
    pollfd fds[] = {{queue_fd_, POLLIN, 0}, {stop_fd_.get(), POLLIN, 0}};
    ::poll(fds, 2, static_cast<int>(limit.count()));
  }
}

}  // namespace farside
