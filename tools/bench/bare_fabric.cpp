// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/bare_fabric.hpp"

#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "tools/bench/sampler.hpp"

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

  explicit Endpoint(const std::string& provider) {
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
      return fi_mr_reg(domain_.get(), words.data(), sizeof words, FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE, 0,
                       1, 0, out, nullptr);
    });
  }

  Name name() const {
    Name mine;
    std::size_t bytes = mine.address.size();
    require(fi_getname(&endpoint_->fid, mine.address.data(), &bytes), "fi_getname");
    mine.bytes = bytes;
    const bool virtual_addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    mine.base = virtual_addresses ? reinterpret_cast<std::uint64_t>(words.data()) : 0;
    mine.key = fi_mr_key(region_.get());
    return mine;
  }
  void meet(const Name& peer) {
    peer_ = peer;
    if (fi_av_insert(peers_.get(), peer.address.data(), 1, &address_, 0, nullptr) != 1) {
      throw std::runtime_error("fi_av_insert");
    }
  }

  // One round trip each.
  void write(std::size_t word, std::uint64_t value) {
    const iovec here{&value, sizeof value};
    const fi_rma_iov there{peer_.base + 8 * word, sizeof value, peer_.key};
    const fi_msg_rma message{&here, nullptr, 1, address_, &there, 1, &context_, 0};
    round_trip([&] { return fi_writemsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE); });
  }
  std::uint64_t fetch_add(std::size_t word, std::uint64_t value) {
    std::uint64_t before = 0;
    const fi_ioc here{&value, 1};
    fi_ioc result{&before, 1};
    const fi_rma_ioc there{peer_.base + 8 * word, 1, peer_.key};
    const fi_msg_atomic message{&here, nullptr, 1, address_, &there, 1, FI_UINT64, FI_SUM, &context_, 0};
    round_trip([&] { return fi_fetch_atomicmsg(endpoint_.get(), &message, &result, nullptr, 1, FI_COMPLETION); });
    return before;
  }

  // Executes what arrives until the word is not 0.
  void serve_until(std::size_t word) {
    int fd = -1;
    require(fi_control(&queue_->fid, FI_GETWAIT, &fd), "the queue's descriptor");
    fid* waited[] = {&queue_->fid};
    fi_cq_entry entry{};
    while (std::atomic_ref(words[word]).load() == 0) {
      if (fi_trywait(fabric_.get(), waited, 1) == FI_SUCCESS) {
        pollfd ready{fd, POLLIN, 0};
        ::poll(&ready, 1, 10);
      }
      fi_cq_read(queue_.get(), &entry, 1);
    }
  }

  alignas(64) std::array<std::uint64_t, 512> words{};

 private:
  template <class T, class Open>
  static void open(Handle<T>& out, const char* what, Open&& call) {
    T* opened = nullptr;
    require(call(&opened), what);
    out.reset(opened);
  }
  template <class Issue>
  void round_trip(Issue&& issue) {
    fi_cq_entry entry{};
    ssize_t code = 0;
    while ((code = issue()) == -FI_EAGAIN) fi_cq_read(queue_.get(), &entry, 0);
    require(code, "issuing");
    while ((code = fi_cq_read(queue_.get(), &entry, 1)) == -FI_EAGAIN) {
    }
    require(code, "fi_cq_read");
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
  fi_context2 context_{};
};

constexpr std::size_t kWord = 0, kEnd = 8;

}  // namespace

Outcome measure_bare(BareOperation operation, const Pair& pair, const Options& options) {
  Outcome outcome;
  std::unique_ptr<Endpoint> endpoint;
  Endpoint::Name mine;
  int good = 1, all_good = 0;
  try {
    endpoint = std::make_unique<Endpoint>(options.provider);
    mine = endpoint->name();
  } catch (const std::exception& error) {
    good = 0;
    outcome.wrong = error.what();
  }
  MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_LAND, pair.comm);
  if (all_good == 0) {
    if (outcome.wrong.empty()) outcome.wrong = "no endpoint at the peer";
    return outcome;
  }
  Endpoint::Name theirs;
  const int peer = pair.origin ? 1 : 0;
  MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, peer, 0, &theirs, sizeof theirs, MPI_BYTE, peer, 0, pair.comm,
               MPI_STATUS_IGNORE);
  try {
    endpoint->meet(theirs);
    if (pair.origin) {
      std::uint64_t done = 0;
      outcome.values = sample_microseconds(options.sample_seconds, [&] {
        if (operation == BareOperation::kWrite) {
          endpoint->write(kWord, done);
        } else if (endpoint->fetch_add(kWord, 1) != done) {
          outcome.wrong = "a wrong value was fetched";
        }
        ++done;
      });
      endpoint->write(kEnd, 1);
    } else {
      endpoint->serve_until(kEnd);
    }
  } catch (const std::exception& error) {
    outcome.wrong = error.what();
  }
  MPI_Barrier(pair.comm);
  return outcome;
}

}  // namespace farside::bench
