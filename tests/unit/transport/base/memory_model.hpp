// SPDX-License-Identifier: BSD-3-Clause
// Enumerates every result that C++ allows for the atomics of a few threads, on any processor, by the model RC11 (Lahav,
// Vafeiadis, Kang, Hur, Dreyer, "Repairing sequential consistency in C/C++11", PLDI 2017; release sequences as in
// C++20). The model leaves out load buffering, which C++ allows and ARMv8 does: a relaxed read of thread A returns the
// value of a write of thread B, although B writes only after it has read a later write of A.
//
// Threads are functions that use modelled::atomic, atomic_ref and atomic_thread_fence. Real headers do so when they are
// included with the name std replaced (memory_order_test.cpp). The model runs a thread again and again from its
// beginning: its reads return the values that were chosen so far, and at the next access it stops. So a thread may
// depend only on values that it reads by these atomics, and may change memory only by them. A thread that would wait
// calls modelled::wait(); the model does not execute the code after it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace farside::modelled {

using Order = std::memory_order;

// The next access of a thread.
struct Access {
  enum class Kind : std::uint8_t { kRead, kWrite, kChange, kFence } kind;
  Order order;
  Order when_unchanged = Order::relaxed;  // of a change that fails, such as a compare-and-swap
  const void* place = nullptr;
  std::uint64_t initial = 0;
  // Returns the value that a write or change stores, from the value before it. No value: the access only reads.
  std::function<std::optional<std::uint64_t>(std::uint64_t)> next = {};
};

class Execution {
 public:
  using Thread = std::function<std::uint64_t()>;
  using Results = std::vector<std::uint64_t>;  // what the threads return
  static constexpr std::size_t kMostEvents = 48;

  // Returns all possible results.
  static std::set<Results> all(std::vector<Thread> threads) {
    Execution execution(std::move(threads));
    execution.explore();
    return execution.results_;
  }
  static Execution* running() { return running_; }

  // Called by the atomics. Returns the value that is read; 0 for stores.
  std::uint64_t access(Access access) {
    if (stopped_) return refuse(access);
    const std::vector<std::size_t>& mine = of_thread_[static_cast<std::size_t>(now_)];
    if (at_ < mine.size()) return events_[mine[at_++]].read;
    pending_ = std::move(access);
    stopped_ = true;
    return refuse(*pending_);
  }
  [[noreturn]] void wait() {
    waits_ = waits_ || !stopped_;
    stopped_ = true;
    throw Stop();
  }

 private:
  struct Stop {};
  struct Event {
    Access::Kind kind;
    Order order;
    int thread;  // -1: the event is the initial value
    const void* place;
    std::uint64_t read = 0, written = 0;
    int from = -1;  // the event that wrote what it reads
    bool reads() const { return kind == Access::Kind::kRead || kind == Access::Kind::kChange; }
    bool writes() const { return kind == Access::Kind::kWrite || kind == Access::Kind::kChange; }
    bool fence() const { return kind == Access::Kind::kFence; }
    bool sc() const { return order == Order::seq_cst; }
    bool releases() const {
      return (writes() || fence()) && (sc() || order == Order::release || order == Order::acq_rel);
    }
    bool acquires() const {
      return (reads() || fence()) && (sc() || order == Order::acquire || order == Order::acq_rel);
    }
  };
  // A relation between events.
  struct Relation {
    std::array<std::uint64_t, kMostEvents> rows{};
    void add(std::size_t a, std::size_t b) { rows[a] |= std::uint64_t{1} << b; }
    bool has(std::size_t a, std::size_t b) const { return (rows[a] >> b & 1) != 0; }
    Relation operator|(const Relation& other) const {
      Relation result;
      for (std::size_t i = 0; i < kMostEvents; ++i) result.rows[i] = rows[i] | other.rows[i];
      return result;
    }
    // The composition of the two relations.
    Relation then(const Relation& other) const {
      Relation result;
      for (std::size_t i = 0; i < kMostEvents; ++i) {
        for (std::uint64_t bits = rows[i]; bits != 0; bits &= bits - 1)
          result.rows[i] |= other.rows[static_cast<std::size_t>(__builtin_ctzll(bits))];
      }
      return result;
    }
    Relation closure() const {
      Relation result = *this;
      for (std::size_t k = 0; k < kMostEvents; ++k) {
        for (std::size_t i = 0; i < kMostEvents; ++i) {
          if (result.has(i, k)) result.rows[i] |= result.rows[k];
        }
      }
      return result;
    }
    bool reflexive() const {
      for (std::size_t i = 0; i < kMostEvents; ++i) {
        if (has(i, i)) return true;
      }
      return false;
    }
    template <class Keep>
    Relation only(Keep&& keep) const {
      Relation result;
      for (std::size_t i = 0; i < kMostEvents; ++i) {
        for (std::uint64_t bits = rows[i]; bits != 0; bits &= bits - 1) {
          const auto j = static_cast<std::size_t>(__builtin_ctzll(bits));
          if (keep(i, j)) result.add(i, j);
        }
      }
      return result;
    }
  };

  explicit Execution(std::vector<Thread> threads) : threads_(std::move(threads)), of_thread_(threads_.size()) {}

  // Stores do not throw, since they may occur in destructors, nor do loads in destructors that this exception runs.
  static std::uint64_t refuse(const Access& access) {
    const bool reads = access.kind == Access::Kind::kRead || access.kind == Access::Kind::kChange;
    if (reads && std::uncaught_exceptions() == 0) throw Stop();
    return 0;
  }

  // Returns the next access of a thread; none if the thread has returned `result` or waits.
  std::optional<Access> next_of(std::size_t thread, bool& waits, std::uint64_t& result) {
    now_ = static_cast<int>(thread);
    at_ = 0;
    stopped_ = waits_ = false;
    pending_.reset();
    running_ = this;
    try {
      result = threads_[thread]();
    } catch (const Stop&) {
    }
    running_ = nullptr;
    waits = waits_;
    return std::exchange(pending_, std::nullopt);
  }

  void explore() {
    if (!seen_.insert(key()).second) return;
    Results results(threads_.size());
    bool all_over = true;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      bool waits = false;
      const std::optional<Access> next = next_of(t, waits, results[t]);
      all_over = all_over && !next && !waits;
      if (next) extend(t, *next);
    }
    if (all_over) results_.insert(results);
  }

  void extend(std::size_t thread, const Access& next) {
    Event event{next.kind, next.order, static_cast<int>(thread), next.place};
    if (next.kind == Access::Kind::kFence) return with(event, [] {});
    const std::vector<std::size_t> order = order_of(next);
    if (next.kind == Access::Kind::kWrite) {
      event.written = *next.next(0);
      // At any position after the initial value, but not between a change and the write that it has read.
      for (std::size_t at = 1; at <= order.size(); ++at) {
        if (at < order.size() && events_[order[at]].kind == Access::Kind::kChange) continue;
        with(event, [&] {
          order_of(next).insert(order_of(next).begin() + static_cast<std::ptrdiff_t>(at), events_.size() - 1);
        });
      }
      return;
    }
    for (std::size_t at = 0; at < order.size(); ++at) {
      event.kind = next.kind;
      event.order = next.order;
      event.from = static_cast<int>(order[at]);
      event.read = events_[order[at]].written;
      const std::optional<std::uint64_t> written =
          next.kind == Access::Kind::kChange ? next.next(event.read) : std::nullopt;
      if (!written) {
        if (next.kind == Access::Kind::kChange) event.order = next.when_unchanged;
        event.kind = Access::Kind::kRead;
        with(event, [] {});
        continue;
      }
      event.written = *written;
      if (at + 1 < order.size() && events_[order[at + 1]].kind == Access::Kind::kChange)
        continue;  // that change has read the same value
      with(event, [&] {
        order_of(next).insert(order_of(next).begin() + static_cast<std::ptrdiff_t>(at) + 1, events_.size() - 1);
      });
    }
  }
  // Continues the search with this event, if the execution stays consistent.
  template <class Insert>
  void with(const Event& event, Insert&& insert) {
    const auto events = events_;
    const auto of_thread = of_thread_;
    const auto orders = orders_;
    if (events_.size() == kMostEvents) throw std::length_error("more events than the memory model has room for");
    of_thread_[static_cast<std::size_t>(event.thread)].push_back(events_.size());
    events_.push_back(event);
    insert();
    if (consistent()) explore();
    events_ = events;
    of_thread_ = of_thread;
    orders_ = orders;
  }

  // The writes of a place, in the order of coherence. The first one is the initial value.
  std::vector<std::size_t>& order_of(const Access& next) {
    std::vector<std::size_t>& order = orders_[next.place];
    if (order.empty()) {
      order.push_back(events_.size());
      events_.push_back({Access::Kind::kWrite, Order::relaxed, -1, next.place, 0, next.initial});
    }
    return order;
  }

  // Returns a key that is equal for executions that differ only in the order in which they were built.
  std::string key() const {
    std::vector<std::pair<int, int>> names(events_.size());
    for (std::size_t t = 0; t < of_thread_.size(); ++t) {
      for (std::size_t i = 0; i < of_thread_[t].size(); ++i)
        names[of_thread_[t][i]] = {static_cast<int>(t), static_cast<int>(i)};
    }
    std::string key;
    const auto put = [&](int value) { key.push_back(static_cast<char>(value + 1)); };
    const auto put_name = [&](std::size_t event) {
      put(events_[event].thread < 0 ? -1 : names[event].first);
      put(names[event].second);
    };
    for (const auto& list : of_thread_) {
      put(static_cast<int>(list.size()));
      for (const std::size_t event : list)
        put_name(events_[event].from < 0 ? event : static_cast<std::size_t>(events_[event].from));
    }
    for (const auto& [place, order] : orders_) {
      if (order.size() == 1) continue;
      key.append(reinterpret_cast<const char*>(&place), sizeof place);
      for (const std::size_t event : order) put_name(event);
    }
    return key;
  }

  bool consistent() const {
    const std::size_t count = events_.size();
    Relation sb, rf, mo, rb, id;
    for (std::size_t i = 0; i < count; ++i) {
      id.add(i, i);
      for (std::size_t j = 0; j < count && events_[i].thread < 0; ++j) {
        if (events_[j].thread >= 0) sb.add(i, j);
      }
      if (events_[i].from >= 0) rf.add(static_cast<std::size_t>(events_[i].from), i);
    }
    for (const auto& list : of_thread_) {
      for (std::size_t a = 0; a < list.size(); ++a) {
        for (std::size_t b = a + 1; b < list.size(); ++b) sb.add(list[a], list[b]);
      }
    }
    for (const auto& [place, order] : orders_) {
      for (std::size_t a = 0; a < order.size(); ++a) {
        for (std::size_t b = a + 1; b < order.size(); ++b) mo.add(order[a], order[b]);
        for (std::size_t r = 0; r < count; ++r) {
          if (events_[r].from != static_cast<int>(order[a])) continue;
          for (std::size_t b = a + 1; b < order.size(); ++b) {
            if (order[b] != r) rb.add(r, order[b]);
          }
        }
      }
    }
    const auto is = [&](auto&& which) {
      return id.only([&](std::size_t i, std::size_t) { return i < count && which(events_[i]); });
    };
    const Relation eco = (rf | mo | rb).closure();
    const Relation fences = is([](const Event& e) { return e.fence(); });
    // Synchronizes-with: from a releasing write, or a fence before a write, through the changes that continue its
    // release sequence, to an acquiring read, or a fence after a read.
    const Relation from_change =
        rf.only([&](std::size_t, std::size_t j) { return events_[j].kind == Access::Kind::kChange; });
    const Relation sequence = from_change.closure() | id;
    const Relation sw = is([](const Event& e) { return e.releases(); })
                            .then(fences.then(sb) | id)
                            .then(is([](const Event& e) { return e.writes(); }))
                            .then(sequence)
                            .then(rf)
                            .then(sb.then(fences) | id)
                            .then(is([](const Event& e) { return e.acquires(); }));
    const Relation hb = (sb | sw).closure();
    if (hb.reflexive() || hb.then(eco).reflexive() || (sb | rf).closure().reflexive()) return false;
    const auto same_place = [&](std::size_t i, std::size_t j) {
      return events_[i].place != nullptr && events_[i].place == events_[j].place;
    };
    const Relation sb_elsewhere = sb.only([&](std::size_t i, std::size_t j) { return !same_place(i, j); });
    const Relation scb = sb | sb_elsewhere.then(hb).then(sb_elsewhere) | hb.only(same_place) | mo | rb;
    const Relation sc = is([](const Event& e) { return e.sc() && !e.fence() && e.thread >= 0; });
    const Relation sc_fences = is([](const Event& e) { return e.sc() && e.fence(); });
    const Relation base = (sc | sc_fences | sc_fences.then(hb)).then(scb).then(sc | sc_fences | hb.then(sc_fences));
    const Relation between_fences = sc_fences.then(hb | hb.then(eco).then(hb)).then(sc_fences);
    return !(base | between_fences).closure().reflexive();
  }

  std::vector<Thread> threads_;
  std::vector<Event> events_;
  std::vector<std::vector<std::size_t>> of_thread_;
  std::map<const void*, std::vector<std::size_t>> orders_;
  std::unordered_set<std::string> seen_;
  std::set<Results> results_;
  // The state of the thread that is being run.
  int now_ = 0;
  std::size_t at_ = 0;
  bool stopped_ = false, waits_ = false;
  std::optional<Access> pending_;
  static inline Execution* running_ = nullptr;
};

[[noreturn]] inline void wait() { Execution::running()->wait(); }

// The operations of the atomics. Outside of an execution they access the initial value.
template <class T>
class Place {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));

 public:
  T load(Order order = Order::seq_cst) const { return make(access(Access::Kind::kRead, order, Unchanged())); }
  void store(T value, Order order = Order::seq_cst) {
    access(Access::Kind::kWrite, order, [value](std::uint64_t) { return bits(value); });
  }
  T exchange(T value, Order order = Order::seq_cst) {
    return change(order, [value](T) { return value; });
  }
  T fetch_add(T value, Order order = Order::seq_cst) {
    return change(order, [value](T before) { return static_cast<T>(before + value); });
  }
  T fetch_sub(T value, Order order = Order::seq_cst) {
    return change(order, [value](T before) { return static_cast<T>(before - value); });
  }
  T fetch_or(T value, Order order = Order::seq_cst) {
    return change(order, [value](T before) { return static_cast<T>(before | value); });
  }
  bool compare_exchange_strong(T& expected, T desired, Order order, Order otherwise) {
    const T found = make(access(
        Access::Kind::kChange, order,
        [expected, desired](std::uint64_t before) -> std::optional<std::uint64_t> {
          return make(before) == expected ? std::optional(bits(desired)) : std::nullopt;
        },
        otherwise));
    return std::exchange(expected, found) == found;
  }
  bool compare_exchange_strong(T& expected, T desired, Order order = Order::seq_cst) {
    const Order otherwise = order == Order::acq_rel ? Order::acquire : order == Order::release ? Order::relaxed : order;
    return compare_exchange_strong(expected, desired, order, otherwise);
  }
  static constexpr bool is_always_lock_free = true;

 protected:
  explicit Place(T* place) : place_(place) {}

 private:
  static std::uint64_t bits(T value) {
    std::uint64_t all = 0;
    std::memcpy(&all, &value, sizeof value);
    return all;
  }
  static T make(std::uint64_t all) {
    T value;
    std::memcpy(&value, &all, sizeof value);
    return value;
  }
  template <class Next>
  std::uint64_t access(Access::Kind kind, Order order, Next next, Order otherwise = Order::relaxed) const {
    if (Execution* const execution = Execution::running()) {
      return execution->access({kind, order, otherwise, place_, bits(*place_), std::move(next)});
    }
    const std::uint64_t before = bits(*place_);
    if (const std::optional<std::uint64_t> after = next(before)) *place_ = make(*after);
    return before;
  }
  struct Unchanged {
    std::optional<std::uint64_t> operator()(std::uint64_t) const { return std::nullopt; }
  };
  template <class Change>
  T change(Order order, Change change) {
    return make(access(Access::Kind::kChange, order, [change](std::uint64_t before) -> std::optional<std::uint64_t> {
      return bits(change(make(before)));
    }));
  }

  T* place_;
};

}  // namespace farside::modelled

// The standard library with these atomics, for headers that are included with the name std replaced by it.
namespace farside_modelled_std {
using namespace ::std;  // NOLINT(google-build-using-namespace)

template <class T>
class atomic_ref : public ::farside::modelled::Place<T> {
 public:
  explicit atomic_ref(T& word) : ::farside::modelled::Place<T>(&word) {}
};

template <class T>
class atomic : public ::farside::modelled::Place<T> {
 public:
  atomic() : atomic(T()) {}
  atomic(T value) : ::farside::modelled::Place<T>(&value_), value_(value) {}  // NOLINT(google-explicit-constructor)
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

 private:
  T value_;
};

inline void atomic_thread_fence(::std::memory_order order) {
  using ::farside::modelled::Access;
  if (auto* const execution = ::farside::modelled::Execution::running())
    execution->access({Access::Kind::kFence, order});
}
inline void atomic_signal_fence(::std::memory_order) {}

}  // namespace farside_modelled_std
