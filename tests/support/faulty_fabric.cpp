// SPDX-License-Identifier: BSD-3-Clause
// run_program preloads this library before libfabric. It makes rare but allowed behaviour of providers frequent.
//
//   FARSIDE_TEST_FAULTS="[seed N] [refuse PERCENT] [late PERCENT] [fail PERCENT] [adds N] [sends 1]"
//
// refuse: this share of the calls that issue an operation begin a series of up to 20 calls that return FI_EAGAIN. late:
// this share of the completions of own operations are up to 2 ms late, in any order; received messages keep their
// order. fail: this share of the completions are errors (FI_EIO), although the operation was carried out; a program may
// set it by faulty_fabric_fail(PERCENT). adds: an adapter carries out only this number of fetch-adds; later ones only
// read. sends: the registration of each message ring fails, so that all messages are sent, with completions.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <string>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include "transport/fabric/message_ring.hpp"

namespace {

using Clock = std::chrono::steady_clock;

// One generator for the process. The timing decides which thread gets a fault, but not the probability of faults.
class Dice {
 public:
  Dice() {
    std::map<std::string, int> like = {{"seed", 1}, {"refuse", 0}, {"late", 0},
                                       {"fail", 0}, {"adds", -1},  {"sends", 0}};
    const char* asked = std::getenv("FARSIDE_TEST_FAULTS");
    std::istringstream words(asked != nullptr ? asked : "");
    for (std::string name; words >> name;) {
      if (like.count(name) == 0 || !(words >> like[name])) std::abort();
    }
    generator_.seed(static_cast<std::uint64_t>(like["seed"]));
    refuse_ = like["refuse"];
    late_ = like["late"];
    fail = like["fail"];
    adds_ = like["adds"];
    sends_ = like["sends"] != 0;
  }
  bool refuses() {
    const std::scoped_lock held(mutex_);
    if (row_ == 0 && below(100) < refuse_) row_ = 1 + below(20);
    return row_ > 0 && row_-- > 0;
  }
  Clock::duration delay() {
    const std::scoped_lock held(mutex_);
    return below(100) < late_ ? std::chrono::microseconds(below(2000)) : Clock::duration{};
  }
  bool fails() {
    const std::scoped_lock held(mutex_);
    return below(100) < fail;
  }
  bool adds() {
    const std::scoped_lock held(mutex_);
    return adds_ < 0 || (adds_ > 0 && adds_-- > 0);
  }
  bool sends() const { return sends_; }
  std::atomic<int> fail = 0;
  std::atomic<int> given = 0, failed = 0;  // completions with errors; and those that the caller has handled

 private:
  int below(int limit) { return static_cast<int>(generator_() % static_cast<std::uint64_t>(limit)); }
  std::mutex mutex_;
  std::mt19937_64 generator_;
  int refuse_ = 0, late_ = 0, row_ = 0, adds_ = -1;
  bool sends_ = false;
};

Dice& dice() {
  static Dice all;
  return all;
}

// A copy of a provider's table of functions, some of them replaced; never freed, as a few objects are made in a run.
template <class Ops>
struct Table : Ops {
  Ops* real;
  static Table* over(Ops*& place) {
    auto* table = new Table{};
    std::memcpy(static_cast<Ops*>(table), place, std::min(place->size, sizeof(Ops)));
    table->real = place;
    place = table;
    return table;
  }
  static Ops* of(Ops* replaced) { return static_cast<Table*>(replaced)->real; }
};

template <auto Field, class Ops, class Message>
ssize_t issue(fid_ep* endpoint, Ops* ops, const Message* message, std::uint64_t flags) {
  if (dice().refuses()) return -FI_EAGAIN;
  return (Table<Ops>::of(ops)->*Field)(endpoint, message, flags);
}

void replace_issuing(fid_ep* endpoint) {
  if (endpoint->rma != nullptr) {
    auto* rma = Table<fi_ops_rma>::over(endpoint->rma);
    rma->writemsg = [](fid_ep* e, const fi_msg_rma* m, std::uint64_t f) {
      return issue<&fi_ops_rma::writemsg>(e, e->rma, m, f);
    };
    rma->readmsg = [](fid_ep* e, const fi_msg_rma* m, std::uint64_t f) {
      return issue<&fi_ops_rma::readmsg>(e, e->rma, m, f);
    };
  }
  if (endpoint->msg != nullptr) {
    auto* messages = Table<fi_ops_msg>::over(endpoint->msg);
    messages->sendmsg = [](fid_ep* e, const fi_msg* m, std::uint64_t f) {
      return issue<&fi_ops_msg::sendmsg>(e, e->msg, m, f);
    };
  }
  if (endpoint->atomic != nullptr) {
    auto* atomics = Table<fi_ops_atomic>::over(endpoint->atomic);
    atomics->readwrite = [](fid_ep* e, const void* operand, size_t count, void* descriptor, void* result,
                            void* result_descriptor, fi_addr_t to, std::uint64_t at, std::uint64_t key,
                            fi_datatype type, fi_op op, void* context) {
      if (dice().refuses()) return static_cast<ssize_t>(-FI_EAGAIN);
      return Table<fi_ops_atomic>::of(e->atomic)->readwrite(e, operand, count, descriptor, result, result_descriptor,
                                                            to, at, key, type, dice().adds() ? op : FI_ATOMIC_READ,
                                                            context);
    };
    atomics->compwrite = [](fid_ep* e, const void* operand, size_t count, void* descriptor, const void* compare,
                            void* compare_descriptor, void* result, void* result_descriptor, fi_addr_t to,
                            std::uint64_t at, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
      if (dice().refuses()) return static_cast<ssize_t>(-FI_EAGAIN);
      return Table<fi_ops_atomic>::of(e->atomic)->compwrite(e, operand, count, descriptor, compare, compare_descriptor,
                                                            result, result_descriptor, to, at, key, type, op, context);
    };
  }
}

// The completions that are withheld from farside for a time.
class Held {
 public:
  static Held& of(fid_cq* queue) {
    static std::mutex mutex;
    static std::map<fid_cq*, Held> all;
    const std::scoped_lock held(mutex);
    return all[queue];
  }
  ssize_t read(fid_cq* queue, void* into, size_t count) {
    const std::scoped_lock held(mutex_);
    dice().failed = dice().given.load();
    // The provider itself reads 0 entries to check whether there is a completion.
    if (count == 0) return waiting_.empty() ? Table<fi_ops_cq>::of(queue->ops)->read(queue, into, 0) : 0;
    const ssize_t code = take_all(queue);
    auto* entries = static_cast<fi_cq_msg_entry*>(into);
    ssize_t read = 0;
    const Clock::time_point now = Clock::now();
    while (static_cast<size_t>(read) < count && !waiting_.empty() && waiting_.begin()->first <= now) {
      if (waiting_.begin()->second.failed) return read > 0 ? read : -FI_EAVAIL;
      entries[read++] = waiting_.begin()->second.entry;
      waiting_.erase(waiting_.begin());
    }
    return read > 0 ? read : code == -FI_EAVAIL ? -FI_EAVAIL : -FI_EAGAIN;
  }
  ssize_t read_error(fid_cq* queue, fi_cq_err_entry* error, std::uint64_t flags) {
    const std::scoped_lock held(mutex_);
    if (waiting_.empty() || waiting_.begin()->first > Clock::now() || !waiting_.begin()->second.failed) {
      return Table<fi_ops_cq>::of(queue->ops)->readerr(queue, error, flags);
    }
    *error = {};
    error->op_context = waiting_.begin()->second.entry.op_context;
    error->flags = waiting_.begin()->second.entry.flags;
    error->err = error->prov_errno = FI_EIO;
    ++dice().given;
    waiting_.erase(waiting_.begin());
    return 1;
  }
  bool any() {
    const std::scoped_lock held(mutex_);
    return !waiting_.empty();
  }

 private:
  struct Completion {
    fi_cq_msg_entry entry;
    bool failed;
  };

  // Reads all completions of the provider. Returns the code of the last read.
  ssize_t take_all(fid_cq* queue) {
    std::array<fi_cq_msg_entry, 32> entries;
    ssize_t code = 0;
    while ((code = Table<fi_ops_cq>::of(queue->ops)->read(queue, entries.data(), entries.size())) > 0) {
      for (ssize_t i = 0; i < code; ++i) {
        const fi_cq_msg_entry& entry = entries[static_cast<size_t>(i)];
        const bool message = (entry.flags & FI_RECV) != 0 || entry.op_context == nullptr;
        const Clock::time_point due = Clock::now() + (message ? Clock::duration{} : dice().delay());
        waiting_.emplace(due, Completion{entry, !message && dice().fails()});
      }
    }
    return code;
  }

  std::mutex mutex_;
  std::multimap<Clock::time_point, Completion> waiting_;
};

std::atomic<fid_cq*> last_queue = nullptr;  // a process with farside has one queue

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  const int code = Table<fi_ops_domain>::of(domain->ops)->cq_open(domain, attributes, queue, context);
  if (code != 0 || attributes->format != FI_CQ_FORMAT_MSG) return code;
  auto* table = Table<fi_ops_cq>::over((*queue)->ops);
  table->read = [](fid_cq* q, void* into, size_t count) { return Held::of(q).read(q, into, count); };
  table->readerr = [](fid_cq* q, fi_cq_err_entry* error, std::uint64_t flags) {
    return Held::of(q).read_error(q, error, flags);
  };
  last_queue = *queue;
  return 0;
}

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  const int code = Table<fi_ops_domain>::of(domain->ops)->endpoint(domain, info, endpoint, context);
  if (code == 0) replace_issuing(*endpoint);
  return code;
}

int register_memory(fid* domain, const void* memory, std::size_t bytes, std::uint64_t access, std::uint64_t offset,
                    std::uint64_t key, std::uint64_t flags, fid_mr** region, void* context) {
  if (dice().sends() && bytes == farside::MessageRing::kMemory) return -FI_ENOMEM;
  const auto* table = Table<fi_ops_mr>::of(reinterpret_cast<fid_domain*>(domain)->mr);
  return table->reg(domain, memory, bytes, access, offset, key, flags, region, context);
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
  const int code = Table<fi_ops_fabric>::of(fabric->ops)->domain(fabric, info, domain, context);
  if (code != 0) return code;
  auto* table = Table<fi_ops_domain>::over((*domain)->ops);
  table->cq_open = open_queue;
  table->endpoint = open_endpoint;
  Table<fi_ops_mr>::over((*domain)->mr)->reg = register_memory;
  return 0;
}

// No thread may sleep while this library withholds completions.
int try_wait(fid_fabric* fabric, fid** objects, int count) {
  fid_cq* queue = last_queue;
  if (queue != nullptr && Held::of(queue).any()) return -FI_EAGAIN;
  return Table<fi_ops_fabric>::of(fabric->ops)->trywait(fabric, objects, count);
}

bool is_farside(const void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string path = info.dli_fname;
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libfarside") || name.starts_with("farside-test");
}

}  // namespace

extern "C" {

void faulty_fabric_fail(int percent) { dice().fail = percent; }
int faulty_fabric_failed() { return dice().failed; }

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
  static const auto next = reinterpret_cast<decltype(&fi_fabric)>(dlsym(RTLD_NEXT, "fi_fabric"));
  const int code = next(attributes, fabric, context);
  if (code != 0 || !is_farside(__builtin_return_address(0))) return code;
  std::fprintf(stderr, "faulty_fabric: %s\n", std::getenv("FARSIDE_TEST_FAULTS"));
  auto* table = Table<fi_ops_fabric>::over((*fabric)->ops);
  table->domain = open_domain;
  table->trywait = try_wait;
  return 0;
}
}
