// SPDX-License-Identifier: BSD-3-Clause
// The orders in which threads and processes see each other's changes. Each pattern that farside relies on runs with the
// real code under the memory model of C++ (memory_model.hpp). A run on x86-64 cannot show all results that weaker
// processors allow.
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <sched.h>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/transport/base/memory_model.hpp"
#include "transport/base/pause.hpp"
#include "transport/node/identity.hpp"

// Replacements of these functions: the model does not continue a thread that waits, and notes a wake.
namespace farside_in_model {
inline bool woken = false;
inline void relax() { farside::modelled::wait(); }
inline bool has_ended(std::uint32_t) { return false; }
template <class Word, class Time>
void futex_wait(const Word&, std::uint32_t, Time) {}
template <class Word>
void futex_wake_all(const Word&) {
  woken = true;
}
}  // namespace farside_in_model

// The real headers with modelled atomics, as they are compiled for processors other than x86-64.
#pragma push_macro("__x86_64__")
#undef __x86_64__
#define std farside_modelled_std
#define farside farside_in_model
#include "transport/base/atomics.hpp"
#include "transport/base/remote_memory.hpp"
#include "transport/base/wake_event.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/node/accumulate_lock.hpp"
#undef std
#undef farside
#pragma pop_macro("__x86_64__")

namespace {

namespace real = farside_in_model;
using farside::modelled::Execution;
using farside_modelled_std::atomic;
using farside_modelled_std::atomic_ref;
using Order = std::memory_order;
using Results = Execution::Results;
using Word = std::uint64_t;

// Returns whether some execution of the threads has these results.
bool may_return(const std::vector<Execution::Thread>& threads, const Results& results) {
  return Execution::all(threads).contains(results);
}

// Accesses to the application's data: unordered loads and stores.
Word get(Word& data) { return atomic_ref(data).load(Order::relaxed); }
void put(Word& data, Word value) { atomic_ref(data).store(value, Order::relaxed); }

}  // namespace

// ---- the model ------------------------------------------------------------------------------------------------------

TEST_CASE("the memory model has the results that are known of the patterns of the literature") {
  Word x = 0, y = 0;
  const auto store = [](Word& word, Order order) { atomic_ref(word).store(1, order); };
  const auto load = [](Word& word, Order order) { return atomic_ref(word).load(order); };
  const auto fence = [](Order order) { farside_modelled_std::atomic_thread_fence(order); };
  SECTION("store buffering") {
    const auto both_old = [&](Order storing, Order loading, bool fenced) {
      const auto thread = [=](Word& mine, Word& other) {
        return [=, &mine, &other] {
          store(mine, storing);
          if (fenced) fence(Order::seq_cst);
          return load(other, loading);
        };
      };
      return may_return({thread(x, y), thread(y, x)}, {0, 0});
    };
    CHECK(both_old(Order::release, Order::acquire, false));
    CHECK(both_old(Order::seq_cst, Order::acquire, false));
    CHECK(both_old(Order::release, Order::seq_cst, false));
    CHECK_FALSE(both_old(Order::seq_cst, Order::seq_cst, false));
    CHECK_FALSE(both_old(Order::relaxed, Order::relaxed, true));
  }
  SECTION("message passing") {
    const auto old_behind_new = [&](Order storing, Order loading) {
      return may_return({[&] {
                           put(x, 1);
                           store(y, storing);
                           return 0;
                         },
                         [&] {
                           const Word seen = load(y, loading);
                           return seen * 10 + get(x);
                         }},
                        {0, 10});
    };
    CHECK(old_behind_new(Order::relaxed, Order::acquire));
    CHECK(old_behind_new(Order::release, Order::relaxed));
    CHECK_FALSE(old_behind_new(Order::release, Order::acquire));
  }
  SECTION("a read-modify-write goes on with what another one has released") {
    const auto old_behind_new = [&](bool change) {
      return may_return({[&] {
                           put(x, 1);
                           atomic_ref(y).store(1, Order::release);
                           return 0;
                         },
                         [&] {
                           if (change) return atomic_ref(y).fetch_add(1, Order::relaxed);
                           atomic_ref(y).store(2, Order::relaxed);
                           return Word{1};
                         },
                         [&] {
                           const Word seen = load(y, Order::acquire);
                           return seen * 10 + get(x);
                         }},
                        {0, 1, 20});
    };
    CHECK(old_behind_new(false));
    CHECK_FALSE(old_behind_new(true));
  }
  SECTION("two that read what two others write agree on the order only if all is sequentially consistent") {
    const auto disagree = [&](Order order) {
      const auto reader = [&load, order](Word& first, Word& second) {
        return [&load, order, &first, &second] {
          const Word one = load(first, order);
          return one * 10 + load(second, order);
        };
      };
      const auto writer = [&](Word& word) {
        return [&store, &word, order] {
          store(word, order == Order::acquire ? Order::release : order);
          return Word{0};
        };
      };
      return may_return({writer(x), writer(y), reader(x, y), reader(y, x)}, {0, 0, 10, 10});
    };
    CHECK(disagree(Order::acquire));
    CHECK_FALSE(disagree(Order::seq_cst));
  }
  SECTION("coherence: nobody sees a word go back, and no addition is lost") {
    CHECK(Execution::all({[&] { return atomic_ref(x).fetch_add(1, Order::relaxed); },
                          [&] { return atomic_ref(x).fetch_add(1, Order::relaxed); }}) ==
          std::set<Results>{{0, 1}, {1, 0}});
    CHECK_FALSE(may_return({[&] {
                              put(x, 1);
                              return 0;
                            },
                            [&] {
                              const Word first = get(x);
                              return first * 10 + get(x);
                            }},
                           {0, 10}));
  }
}

// ---- farside's patterns ---------------------------------------------------------------------------------------------

// epochs/protocols/exposure.hpp: a post and a lock_all each change a word at the home of the global lock, and then read
// the word of the other.
TEST_CASE("of two ranks that each change a control word and then read the other's, one sees the other") {
  Word exposed = 0, global_lock = 0;
  const auto rank = [](Word& mine, Word& other) {
    return [&] {
      real::ControlWord::fetch_add(mine, 1);
      return real::ControlWord::read(other);
    };
  };
  CHECK(Execution::all({rank(exposed, global_lock), rank(global_lock, exposed)}) ==
        std::set<Results>{{0, 1}, {1, 0}, {1, 1}});
}

TEST_CASE(
    "data put before the change of a control word are visible to a rank that sees the change, directly or by other "
    "ranks") {
  Word data = 0, word = 0;
  const auto put_and = [&](auto&& tell) {
    return [&data, &word, tell] {
      put(data, 1);
      tell(word);
      return 0;
    };
  };
  const auto get_behind = [&](auto&& look) {
    return [&data, &word, look] {
      const Word seen = look(word);
      return seen * 10 + get(data);
    };
  };
  const auto probes = {real::ControlWord::look, real::ControlWord::read,
                       +[](Word& at) { return real::ControlWord::fetch_add(at, 1) % 2; },
                       +[](Word& at) { return real::ControlWord::compare_and_swap(at, 1, 0); }};
  for (const auto look : probes) {
    CHECK(may_return({put_and([](Word& at) { real::ControlWord::write(at, 1); }), get_behind(look)}, {0, 11}));
    CHECK_FALSE(may_return({put_and([](Word& at) { real::ControlWord::write(at, 1); }), get_behind(look)}, {0, 10}));
    CHECK_FALSE(
        may_return({put_and([](Word& at) { real::ControlWord::fetch_add(at, 1); }), get_behind(look)}, {0, 10}));
    CHECK_FALSE(may_return({put_and([](Word& at) { real::ControlWord::compare_and_swap(at, 0, 1); }), get_behind(look)},
                           {0, 10}));
  }
  // Two ranks complete, and a third waits for both. Then a barrier of three ranks.
  Word other_data = 0;
  CHECK(Execution::all({put_and([](Word& at) { real::ControlWord::fetch_add(at, 1); }),
                        [&] {
                          put(other_data, 1);
                          real::ControlWord::fetch_add(word, 1);
                          return 0;
                        },
                        [&] {
                          if (real::ControlWord::look(word) != 2) return Word{0};
                          return 10 + get(data) + get(other_data);
                        }}) == std::set<Results>{{0, 0, 0}, {0, 0, 12}});
  Word next = 0;
  CHECK(Execution::all({put_and([](Word& at) { real::ControlWord::write(at, 1); }),
                        [&] {
                          if (real::ControlWord::look(word) != 0) real::ControlWord::write(next, 1);
                          return 0;
                        },
                        [&] {
                          const Word seen = real::ControlWord::look(next);
                          return seen * 10 + get(data);
                        }}) == std::set<Results>{{0, 0, 0}, {0, 0, 1}, {0, 0, 11}});
}

// Lock words: a get under the lock precedes the puts of the next holder.
TEST_CASE("what is got before a lock is given back is not what the next holder puts") {
  Word data = 0, lock = 1;
  CHECK(Execution::all({[&] {
                          const Word got = get(data);
                          real::ControlWord::fetch_add(lock, -Word{1});
                          return got;
                        },
                        [&] {
                          const Word before = real::ControlWord::fetch_add(lock, 2);
                          if (before == 0) put(data, 1);
                          return before;
                        }}) == std::set<Results>{{0, 0}, {0, 1}});
}

// base/wake_event.hpp: the sleeper returns 1 if it goes to sleep; the changer returns 1 if it signals the wake event.
TEST_CASE("the process that changes a control word sees a sleeper, or the sleeper sees the change") {
  for (const bool by_store : {false, true}) {
    Word word = 0;
    real::WakeEvent wake_event;
    const auto sleeper = [&] {
      const std::uint32_t armed = wake_event.arm();
      return real::ControlWord::look(word) == 0 ? Word{armed} + 1 : Word{0};
    };
    const auto changer = [&] {
      real::woken = false;
      by_store ? real::ControlWord::write(word, 1) : static_cast<void>(real::ControlWord::fetch_add(word, 1));
      wake_event.wake_if_armed();
      return Word{real::woken ? 1U : 0U};
    };
    // The sleeper would sleep without a signal.
    CHECK_FALSE(may_return({sleeper, changer}, {1, 0}));
    CHECK(may_return({sleeper, changer}, {1, 1}));
    CHECK(may_return({sleeper, changer}, {0, 0}));
  }
}

// base/wake_event.hpp: a thread that progresses the endpoint signals the listeners, which also arm their wake events
// (Waiter::arm). Progress completes operations, and lets the provider write memory for peers, in any order.
TEST_CASE("a thread that has polled the endpoint sees a listener, or the listener sees the progress") {
  Word word = 0;
  real::Pending pending;
  pending.issued(real::Pending::kMessages);
  real::WakeEvent listening, wake_event;
  const auto sleeper = [&](auto&& moved) {
    return [&listening, &wake_event, moved] {
      listening.arm();
      wake_event.arm();
      return Word{moved() ? 0U : 1U};
    };
  };
  const auto mover = [&](auto&& move) {
    return [&listening, move] {
      move();
      return Word{listening.armed_behind_changes() ? 1U : 0U};
    };
  };
  const std::set<Results> right{{0, 0}, {0, 1}, {1, 1}};
  CHECK(Execution::all({sleeper([&] { return pending.done(); }),
                        mover([&] { pending.completed(real::Pending::kMessages); })}) == right);
  CHECK(Execution::all({sleeper([&] { return real::ControlWord::look(word) == 1; }), mover([&] { put(word, 1); })}) ==
        right);
}

// fabric/pending.hpp: one operation has failed, and another one has fetched data.
TEST_CASE("a thread that sees operations done sees their data and their failures") {
  Word fetched = 0, failed = 0;
  real::Pending pending;
  pending.issued(real::Pending::kMessages);
  pending.issued(real::Pending::kMessages);
  CHECK(Execution::all({[&] {
                          put(fetched, 1);
                          pending.completed(real::Pending::kMessages);
                          return 0;
                        },
                        [&] {
                          put(failed, 1);
                          pending.completed(real::Pending::kMessages);
                          return 0;
                        },
                        [&] { return pending.done() ? 10 + get(fetched) + get(failed) : Word{0}; }}) ==
        std::set<Results>{{0, 0, 0}, {0, 0, 12}});
}

// base/atomics.hpp: in the unified memory model a flush orders earlier puts before later gets.
TEST_CASE("of two ranks that each put, flush and then get what the other one has put, one gets it") {
  Word x = 0, y = 0, lock = 0;
  std::array<real::Stores, 2> stores_of;
  const auto rank = [&](Word& mine, Word& other, bool by_atomic) {
    return [&, to = &mine, from = &other, by_atomic] {
      real::Stores& stores = stores_of[to == &x ? 0 : 1];
      put(*to, 1);
      stores.made();
      if (by_atomic) {
        real::ControlWord::fetch_add(lock, 1);
        stores.drained_by_atomic();
      } else {
        stores.drain();
      }
      return get(*from);
    };
  };
  const std::set<Results> right{{0, 1}, {1, 0}, {1, 1}};
  CHECK(Execution::all({rank(x, y, false), rank(y, x, false)}) == right);
  CHECK(Execution::all({rank(x, y, true), rank(y, x, false)}) == right);
}

TEST_CASE("stores under the accumulate lock are visible to its next holder, and holders exclude each other") {
  Word data = 0;
  real::AccumulateLockWord lock;
  const auto add = [&] {
    const real::AccumulateLock held(lock);
    const Word before = get(data);
    put(data, before + 1);
    return before;
  };
  CHECK(Execution::all({add, add}) == std::set<Results>{{0, 1}, {1, 0}});
  const auto claim = [&] {
    const real::AccumulateLock held(lock, std::chrono::seconds(1));
    const Word before = get(data);
    put(data, before + 1);
    return before;
  };
  CHECK(Execution::all({add, claim}) == std::set<Results>{{0, 1}, {1, 0}});
  // What is released while a thread claims the lock goes to such a thread.
  lock.claimed.store(1);
  CHECK(Execution::all({add, claim}) == std::set<Results>{{0, 1}, {1, 0}});
  CHECK(Execution::all({add, add}).empty());
  CHECK(Execution::all({add, add, claim}) == std::set<Results>{{0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}});
}
