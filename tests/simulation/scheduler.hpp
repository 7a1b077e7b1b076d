// SPDX-License-Identifier: BSD-3-Clause
// The scheduler of the simulation: all threads of all ranks as fibers of one kernel thread, in virtual time, with every
// choice drawn from a seed.
//
// Each simulated thread has a kernel thread, which parks for ever as soon as it runs: it only lends its thread-local
// storage. A switch exchanges the stack and the register that points to that storage, so thread_local, errno,
// pthread_self() and exceptions belong to the simulated thread, and cost what they cost otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace simulation {

using Time = std::int64_t;  // nanoseconds since the start of the simulation
constexpr Time kNever = INT64_MAX;
constexpr Time kMicrosecond = 1'000, kSecond = 1'000'000'000;

// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// The word or object that a thread waits for. In shared memory by file and offset; file 0: private memory.
using Key = std::pair<std::uint64_t, std::uint64_t>;
inline Key key_of(const void* object) { return {0, reinterpret_cast<std::uintptr_t>(object)}; }

struct Thread {
  int rank = 0;
  int id = 0;
  std::string name;
  std::function<void()> run;
  const char* doing = "runs";  // for reports: "waits for a mutex"
  Key key{};
  bool begun = false, woken = false, ended = false;
  bool awaited = false;  // by run()
  int priority = 0;
  std::map<unsigned, void*> specific;       // pthread_setspecific(3)
  std::vector<std::function<void()>> ends;  // destructors of thread_local objects
  void* stack = nullptr;                    // the lowest byte
  void* stack_pointer = nullptr;            // while it does not run
  std::uint64_t storage = 0;                // the register of its thread-local storage
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>>::iterator timer{};
  bool has_timer = false;
};

struct Options {
  std::uint64_t seed = 1;
  Time longest = 600 * kSecond;  // of virtual time
};

class Scheduler {
 public:
  explicit Scheduler(const Options& options);

  Time now() const { return now_; }
  Random& random() { return random_; }
  // The thread that runs; null in the simulation's own code outside of run().
  Thread* current() const { return current_; }
  // Time passes without a scheduling point.
  void pass(Time time) { now_ += time; }
  std::uint64_t steps() const { return steps_; }
  // A hash of all choices so far, with their times.
  std::uint64_t trace() const { return trace_; }

  Thread& start(int rank, std::string name, std::function<void()> run);
  // Runs all threads until those of `until` have ended. Ends the process if none can go on, or at Options::longest.
  void run(const std::vector<Thread*>& until);

  // The following are for the running thread.
  // A scheduling point: another thread may run. One that has nothing to do but wait is `idle`.
  void yield(bool idle = false);
  // The same, before the thread accesses memory: at one of some accesses, by the seed, it is interrupted.
  void at_atomic() {
    if (--until_atomic_ == 0) until_atomic_ = interrupt(between_atomics_);
  }
  void at_access() {
    if (--until_access_ == 0) until_access_ = interrupt(between_accesses_);
  }
  // After the thread has changed the word by a compare-and-swap: `call`, at the first one for which it returns true.
  void at_swap(const volatile void* word) {
    if (on_swap_ == nullptr) return;
    auto call = std::exchange(on_swap_, nullptr);
    if (!call(word)) on_swap_ = std::move(call);
  }
  void on_swap(std::function<bool(const volatile void*)> call) { on_swap_ = std::move(call); }
  // Blocks until wake(key), or the deadline. Returns whether it was woken.
  bool block(Key key, Time deadline, const char* doing);
  // Wakes the first `most` threads that are blocked on the key, in an order drawn by the seed. Returns their number.
  int wake(Key key, int most = INT32_MAX);
  // Runs `call` on the simulation's own stack at that time.
  void at(Time time, std::function<void()> call);
  void sleep(Time duration) { block(Key{}, now_ + duration, "sleeps"); }
  [[noreturn]] void end_thread();

  // While `call` runs, no other thread does: it holds a lock of the C library.
  template <class Call>
  auto alone(Call&& call) {
    ++alone_;
    const auto result = call();
    --alone_;
    return result;
  }

  // The threads of a stopped rank do not run, and miss nothing, until it continues.
  void stop(int rank);
  void proceed(int rank);
  // They never run again, wherever they are.
  void kill(int rank);

  // Prints where each thread is.
  void report();

 private:
  void switch_to(Thread& thread);
  void switch_back();
  void make_ready(Thread& thread);
  Thread* choose();
  void stop_timer(Thread& thread);
  void leave_blocked(Thread& thread);
  std::int64_t interrupt(std::int64_t mean);
  void end(Thread& thread);

  Random random_;
  const Time longest_;
  Time now_ = 0;
  Time step_;               // of virtual time, per scheduling point
  std::uint64_t preempts_;  // a thread that could go on is interrupted at one in so many scheduling points
  Time leap_;               // the most that passes at first between two polls of a thread that has nothing to do
  Time idle_yields_ = 0;    // since an event
  // Accesses to memory between two interruptions, on average, and from now on.
  std::int64_t between_atomics_, between_accesses_, until_atomic_, until_access_;
  enum class Strategy { kUniform, kPriorities, kStarved } strategy_;
  int starved_ = -1;  // the rank that seldom runs
  int lowest_ = 0;    // priority given so far
  std::function<bool(const volatile void*)> on_swap_;
  int alone_ = 0;
  std::size_t awaited_ = 0;  // threads that have not ended
  std::uint64_t steps_ = 0, trace_ = 0xcbf29ce484222325, timers_made_ = 0;
  std::deque<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> ready_;
  std::map<int, std::vector<Thread*>> stopped_;  // those that could run, by rank
  std::map<Key, std::vector<Thread*>> blocked_;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> timers_;
  Thread* current_ = nullptr;
  Thread home_;               // the kernel thread of the simulation
  std::uint64_t in_use_ = 0;  // Thread::storage
  bool reporting_ = false;
};

// The only one.
extern Scheduler* scheduler;
inline Thread* current() { return scheduler != nullptr ? scheduler->current() : nullptr; }

}  // namespace simulation
