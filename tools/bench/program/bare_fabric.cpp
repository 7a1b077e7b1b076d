// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <poll.h>
#include <span>
#include <stdexcept>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tools/bench/program/measuring.hpp"

namespace farside::bench {
namespace {

void require(std::int64_t code, const char* what) {
  if (code < 0) throw std::runtime_error(std::string(what) + ": " + fi_strerror(static_cast<int>(-code)));
}

struct CloseFid {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using Handle = std::unique_ptr<T, CloseFid>;

class Endpoint {
 public:
  struct Name {
    std::array<char, 120> address{};
    std::uint64_t bytes = sizeof address, base = 0, key = 0;
  };

  // `bytes`: the memory for the peer, in addition to the control words, and the size of its messages.
  Endpoint(const std::string& provider, std::size_t bytes) : memory_(kControl + bytes / 8), received_(bytes / 8) {
    const std::unique_ptr<fi_info, void (*)(fi_info*)> hints(fi_allocinfo(), fi_freeinfo);
    hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    fi_info* info = nullptr;
    require(fi_getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints.get(), &info), "fi_getinfo");
    info_.reset(info);
    open(fabric_, "fi_fabric", [&](fid_fabric** out) { return fi_fabric(info->fabric_attr, out, nullptr); });
    open(domain_, "fi_domain", [&](fid_domain** out) { return fi_domain(fabric_.get(), info, out, nullptr); });
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    open(peers_, "fi_av_open", [&](fid_av** out) { return fi_av_open(domain_.get(), &av_attr, out, nullptr); });
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_CONTEXT;
    cq_attr.wait_obj = FI_WAIT_FD;
    open(queue_, "fi_cq_open", [&](fid_cq** out) { return fi_cq_open(domain_.get(), &cq_attr, out, nullptr); });
    open(endpoint_, "fi_endpoint", [&](fid_ep** out) { return fi_endpoint(domain_.get(), info, out, nullptr); });
    require(fi_ep_bind(endpoint_.get(), &peers_->fid, 0), "fi_ep_bind");
    require(fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    require(fi_enable(endpoint_.get()), "fi_enable");
    open(region_, "fi_mr_reg", [&](fid_mr** out) {
      return fi_mr_reg(domain_.get(), memory_.data(), 8 * memory_.size(),
                       FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0, 1, 0, out, nullptr);
    });
  }

  Name name() const {
    Name mine;
    std::size_t bytes = mine.address.size();
    require(fi_getname(&endpoint_->fid, mine.address.data(), &bytes), "fi_getname");
    mine.bytes = bytes;
    const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    mine.base = virtual_addresses ? reinterpret_cast<std::uint64_t>(memory_.data()) : 0;
    mine.key = fi_mr_key(region_.get());
    return mine;
  }
  void meet(const Name& peer) {
    peer_ = peer;
    if (fi_av_insert(peers_.get(), peer.address.data(), 1, &address_, 0, nullptr) != 1)
      throw std::runtime_error("fi_av_insert");
  }

  static constexpr std::size_t kControl = 512;  // words at the beginning of the memory
  std::uint64_t* data() { return memory_.data() + kControl; }

  // Each of these is one round trip. Offsets are in words of the memory.
  void write(std::size_t word, std::span<std::uint64_t> values) {
    issue_write(0, word, values);
    wait_for(1);
  }
  void read(std::size_t word, std::span<std::uint64_t> values) {
    transfer(0, word, values,
             [&](const fi_msg_rma& message) { return fi_readmsg(endpoint_.get(), &message, FI_COMPLETION); });
    wait_for(1);
  }
  std::uint64_t fetch_add(std::size_t word, std::uint64_t value) {
    return atomic(word, value, FI_SUM, [&](const fi_msg_atomic& message, fi_ioc& result) {
      return fi_fetch_atomicmsg(endpoint_.get(), &message, &result, nullptr, 1, FI_COMPLETION);
    });
  }
  std::uint64_t compare_swap(std::size_t word, std::uint64_t expected, std::uint64_t desired) {
    const fi_ioc compare{&expected, 1};
    return atomic(word, desired, FI_CSWAP, [&](const fi_msg_atomic& message, fi_ioc& result) {
      return fi_compare_atomicmsg(endpoint_.get(), &message, &compare, nullptr, 1, &result, nullptr, 1, FI_COMPLETION);
    });
  }
  // Writes each word separately, with all writes under way at once.
  void write_each(std::size_t word, std::span<std::uint64_t> values) {
    for (std::size_t i = 0; i < values.size(); ++i) issue_write(i, word + i, values.subspan(i, 1));
    wait_for(values.size());
  }

  // Sends a message, and receives the answer of a peer that answers. Returns the answer.
  std::uint64_t exchange(std::span<std::uint64_t> values) {
    std::uint64_t answer = 0;
    receive(&answer, sizeof answer);
    if (values.size_bytes() <= info_->tx_attr->inject_size) {
      inject(values);
      wait_for(1);
    } else {
      issue(1, [&](void* context) {
        return fi_send(endpoint_.get(), values.data(), values.size_bytes(), nullptr, address_, context);
      });
      wait_for(2);
    }
    return answer;
  }
  // From now on serve_until() answers each message by its first word.
  void answer_messages() {
    answers_ = true;
    receive(received_.data(), 8 * received_.size());
  }

  // Executes arrivals until the word is not 0. Between arrivals it sleeps or polls.
  void serve_until(std::size_t word, bool sleeps) {
    int fd = -1;
    require(fi_control(&queue_->fid, FI_GETWAIT, &fd), "the queue's descriptor");
    fid* waited[] = {&queue_->fid};
    fi_cq_entry entry{};
    while (std::atomic_ref(memory_[word]).load() == 0) {
      if (sleeps && fi_trywait(fabric_.get(), waited, 1) == FI_SUCCESS) {
        pollfd ready{fd, POLLIN, 0};
        ::poll(&ready, 1, 10);
      }
      if (fi_cq_read(queue_.get(), &entry, 1) != 1 || !answers_) continue;
      std::uint64_t answer = received_.front();
      receive(received_.data(), 8 * received_.size());
      inject({&answer, 1});
    }
  }

 private:
  template <class T, class Open>
  static void open(Handle<T>& out, const char* what, Open&& call) {
    T* opened = nullptr;
    require(call(&opened), what);
    out.reset(opened);
  }
  // `call(message)` starts the i-th of the transfers that are under way.
  template <class Call>
  void transfer(std::size_t i, std::size_t word, std::span<std::uint64_t> values, Call&& call) {
    const iovec here{values.data(), values.size_bytes()};
    const fi_rma_iov there{peer_.base + 8 * word, values.size_bytes(), peer_.key};
    issue(i, [&](void* context) { return call({&here, nullptr, 1, address_, &there, 1, context, 0}); });
  }
  void issue_write(std::size_t i, std::size_t word, std::span<std::uint64_t> values) {
    transfer(i, word, values, [&](const fi_msg_rma& message) {
      return fi_writemsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  }
  // Returns what was there before; `call(message, result)` starts the operation.
  template <class Call>
  std::uint64_t atomic(std::size_t word, std::uint64_t value, fi_op op, Call&& call) {
    std::uint64_t before = 0;
    const fi_ioc here{&value, 1};
    fi_ioc result{&before, 1};
    const fi_rma_ioc there{peer_.base + 8 * word, 1, peer_.key};
    issue(0, [&](void* context) {
      return call({&here, nullptr, 1, address_, &there, 1, FI_UINT64, op, context, 0}, result);
    });
    wait_for(1);
    return before;
  }
  void receive(void* to, std::size_t bytes) {
    issue(0, [&](void* context) { return fi_recv(endpoint_.get(), to, bytes, nullptr, FI_ADDR_UNSPEC, context); });
  }
  // Sends a message without a completion.
  void inject(std::span<std::uint64_t> values) {
    issue(1, [&](void*) { return fi_inject(endpoint_.get(), values.data(), values.size_bytes(), address_); });
  }
  // `call(context)` starts an operation, which gets the i-th context.
  template <class Call>
  void issue(std::size_t i, Call&& call) {
    ssize_t code = 0;
    while ((code = call(&contexts_[i % contexts_.size()])) == -FI_EAGAIN) take_completion();
    require(code, "issuing");
  }
  void take_completion() {
    fi_cq_entry entry{};
    const ssize_t code = fi_cq_read(queue_.get(), &entry, 1);
    if (code == -FI_EAGAIN) return;
    require(code, "fi_cq_read");
    ++completed_;
  }
  void wait_for(std::size_t operations) {
    while (completed_ < operations) take_completion();
    completed_ = 0;
  }

  std::unique_ptr<fi_info, void (*)(fi_info*)> info_{nullptr, fi_freeinfo};
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_av> peers_;
  Handle<fid_cq> queue_;
  Handle<fid_mr> region_;
  Handle<fid_ep> endpoint_;
  Name peer_;
  fi_addr_t address_ = FI_ADDR_UNSPEC;
  std::array<fi_context2, 64> contexts_{};
  std::size_t completed_ = 0;  // completed operations among those under way
  std::vector<std::uint64_t> memory_;
  std::vector<std::uint64_t> received_;  // the last message
  bool answers_ = false;
};

// Bare round trips over libfabric, to compare with MPI calls over the same provider. An operation is over when the
// target has executed it; the origin issues it and polls. At a target whose main thread sleeps or computes, another
// thread sleeps in poll(2) on the completion queue and executes arrivals. At a target that waits in MPI in the
// corresponding measure, the main thread polls.
enum class BareFabric {
  kWrite,
  kRead,
  kFetchAdd,     // of 8 bytes
  kCompareSwap,  // of 8 bytes
  kWrites64,     // 64 writes of 8 bytes, all under way at once
  kMessage,      // a message, and an answer of 8 bytes
};

constexpr std::size_t kWord = 0, kEnd = 8;
constexpr std::uint64_t kPattern = 0x0123456789abcdef;

template <BareFabric what>
Outcome measure_bare_fabric(const MeasureInfo& info, const Pair& pair, const Options& options) {
  const std::size_t bytes = what == BareFabric::kWrites64 ? 64 * 8 : bytes_of(info);  // a multiple of 8
  Outcome outcome;
  std::unique_ptr<Endpoint> endpoint;
  Endpoint::Name mine;
  try {
    endpoint = std::make_unique<Endpoint>(options.provider, bytes);
    mine = endpoint->name();
  } catch (const std::exception& error) {
    outcome.wrong = error.what();
  }
  if (!tools::at_all(outcome.wrong.empty(), pair.comm)) {
    if (outcome.wrong.empty()) outcome.wrong = "no endpoint at the peer";
    return outcome;
  }
  const bool writes = what == BareFabric::kWrite || what == BareFabric::kWrites64;
  if (what == BareFabric::kRead) std::fill_n(endpoint->data(), bytes / 8, kPattern);
  Endpoint::Name theirs;
  const int peer = pair.origin ? 1 : 0;
  MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, peer, 0, &theirs, sizeof theirs, MPI_BYTE, peer, 0, pair.comm,
               MPI_STATUS_IGNORE);
  std::uint64_t written = 0;
  std::atomic<bool> served{false};
  const auto work = [&] {
    try {
      endpoint->meet(theirs);
      if (what == BareFabric::kMessage && !pair.origin) endpoint->answer_messages();
      if (!pair.origin) return endpoint->serve_until(kEnd, info.target != TargetState::kServes);
      std::vector<std::uint64_t> values(bytes / 8);
      bool right = true;
      const auto operation = [&] {
        if (what == BareFabric::kFetchAdd) return void(right = endpoint->fetch_add(kWord, 1) == written++ && right);
        values.front() = values.back() = ++written;
        if (what == BareFabric::kWrite) endpoint->write(Endpoint::kControl, values);
        if (what == BareFabric::kWrites64) endpoint->write_each(Endpoint::kControl, values);
        if (what == BareFabric::kRead) endpoint->read(Endpoint::kControl, values);
        if (what == BareFabric::kRead) right = right && values.front() == kPattern && values.back() == kPattern;
        if (what == BareFabric::kCompareSwap)
          right = endpoint->compare_swap(kWord, written - 1, written) == written - 1 && right;
        if (what == BareFabric::kMessage) right = endpoint->exchange(values) == written && right;
      };
      const bool late = what == BareFabric::kMessage && info.target == TargetState::kServesAsleep;
      outcome.values = in_unit(info, bytes, sample(options.sample_seconds, operation, late ? kLate : kLate.zero()));
      if (!right) outcome.wrong = "a wrong value came back";
      std::uint64_t end = 1;
      endpoint->write(kEnd, {&end, 1});
    } catch (const std::exception& error) {
      outcome.wrong = error.what();
    }
  };
  if (pair.origin || info.target == TargetState::kServes) {
    work();
  } else {
    std::thread server([&] {
      work();
      served = true;
    });
    // The work of the main thread meanwhile.
    const auto pass = info.target == TargetState::kServesBusy ? compute_until : sleep_until;
    while (!served) pass(Clock::now() + std::chrono::milliseconds(1));
    server.join();
  }
  MPI_Barrier(pair.comm);
  written = of_rank(0, written, pair.comm);
  const bool arrived = !writes || (endpoint->data()[0] == written && endpoint->data()[bytes / 8 - 1] == written);
  if (!of_rank(1, arrived, pair.comm) && outcome.wrong.empty()) outcome.wrong = "what was written did not arrive";
  return outcome;
}

const Registered kMeasures[] = {{"bare_write", measure_bare_fabric<BareFabric::kWrite>},
                                {"bare_read", measure_bare_fabric<BareFabric::kRead>},
                                {"bare_write_size", measure_bare_fabric<BareFabric::kWrite>},
                                {"bare_read_size", measure_bare_fabric<BareFabric::kRead>},
                                {"bare_fetch_add", measure_bare_fabric<BareFabric::kFetchAdd>},
                                {"bare_compare_swap", measure_bare_fabric<BareFabric::kCompareSwap>},
                                {"bare_writes_64", measure_bare_fabric<BareFabric::kWrites64>},
                                {"bare_message", measure_bare_fabric<BareFabric::kMessage>}};

}  // namespace
}  // namespace farside::bench
