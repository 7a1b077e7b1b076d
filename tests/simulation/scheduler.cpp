// SPDX-License-Identifier: BSD-3-Clause
#include "tests/simulation/scheduler.hpp"

#include <algorithm>
#include <asm/prctl.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <execinfo.h>
#include <span>
#include <string_view>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/simulation/host.hpp"

#if !defined(__x86_64__)
#error "the switch of fibers is written for x86-64"
#endif

namespace simulation {

namespace {

// The stack of the running thread, as a command that prints it.
void print_stack() {
  void* frames[48];
  std::string text = "  addr2line -Cfpie " + host::program;
  for (const void* const frame : std::span(frames, static_cast<std::size_t>(backtrace(frames, 48)))) {
    Dl_info file{};
    if (dladdr(frame, &file) == 0 || !std::string_view(file.dli_fname).starts_with("/proc/self/fd/")) continue;
    char offset[32];
    std::snprintf(offset, sizeof offset, " %tx", static_cast<const char*>(frame) - static_cast<char*>(file.dli_fbase));
    text += offset;
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

constexpr std::size_t kStack = std::size_t{1} << 20;

// Pushes the registers that a function preserves, exchanges the stacks, and pops those of the other thread.
extern "C" void simulation_switch(void** from, void* to);
asm(R"(
.globl simulation_switch
.type simulation_switch, @function
simulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simulation_switch, .-simulation_switch
)");

long system_call(long number, long first = 0, long second = 0) {
  asm volatile("syscall" : "+a"(number) : "D"(first), "S"(second) : "rcx", "r11", "memory");
  return number;
}

std::uint64_t own_storage() {
  std::uint64_t base = 0;
  asm("movq %%fs:0, %0" : "=r"(base));
  return base;
}
[[gnu::target("fsgsbase")]] void use_storage_by_instruction(std::uint64_t base) { __builtin_ia32_wrfsbase64(base); }
// Some virtual machines allow the instruction to a kernel that does not know of it. That kernel puts the old value back
// whenever it preempts the process.
void use_storage(std::uint64_t base) {
  constexpr unsigned long kKernelKnows = 2;  // HWCAP2_FSGSBASE
  static const bool by_instruction = (getauxval(AT_HWCAP2) & kKernelKnows) != 0;
  if (by_instruction)
    use_storage_by_instruction(base);
  else
    system_call(SYS_arch_prctl, ARCH_SET_FS, static_cast<long>(base));
}

// From the store on, the storage is the fiber's. So this calls nothing of the C library, which would use it at the same
// time, on another processor.
void* lend_storage(void* place) {
  static_cast<std::atomic<std::uint64_t>*>(place)->store(own_storage());
  while (true) system_call(SYS_pause);
}

std::uint64_t borrow_storage() {
  std::atomic<std::uint64_t> storage{0};
  pthread_t lender{};
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 * 1024);
  if (host::pthread_create(&lender, &small, lend_storage, &storage) != 0) host::fail("no more kernel threads");
  while (storage.load() == 0) host::sched_yield();
  return storage.load();
}

void begin_thread() {
  current()->run();
  scheduler->end_thread();
}

}  // namespace

Scheduler* scheduler = nullptr;

Scheduler::Scheduler(const Options& options) : random_(options.seed), longest_(options.longest) {
  constexpr Time kSteps[] = {20, 100, 500};
  constexpr std::uint64_t kPreempts[] = {2, 8, 64};
  constexpr Time kLeaps[] = {0, 1 * kMicrosecond, 20 * kMicrosecond};
  step_ = kSteps[random_.below(3)];
  leap_ = kLeaps[random_.below(3)];
  preempts_ = kPreempts[random_.below(3)];
  strategy_ = static_cast<Strategy>(random_.below(3));
  // Plain accesses matter only where farside forgets a lock.
  constexpr std::int64_t kAtomics[] = {16, 128, 2048}, kAccesses[] = {500, 20'000, kNever / 2, kNever / 2};
  until_atomic_ = between_atomics_ = kAtomics[random_.below(3)];
  until_access_ = between_accesses_ = kAccesses[random_.below(4)];
  home_.storage = in_use_ = own_storage();
}

Thread& Scheduler::start(int rank, std::string name, std::function<void()> run) {
  if (strategy_ == Strategy::kStarved && rank == 0 && starved_ < 0) starved_ = 0;
  Thread& made = *threads_.emplace_back(std::make_unique<Thread>());
  made.rank = rank;
  made.id = static_cast<int>(threads_.size());
  made.name = std::move(name);
  made.run = std::move(run);
  made.priority = static_cast<int>(random_.below(1000));
  made.storage = borrow_storage();
  made.stack = host::mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (made.stack == MAP_FAILED) host::fail("no memory for a stack");
  mprotect(made.stack, 4096, PROT_NONE);
  // Six registers, and the address to which simulation_switch() returns. There the stack is as behind a call.
  auto** const top = reinterpret_cast<void**>(static_cast<char*>(made.stack) + kStack - 64);
  top[0] = reinterpret_cast<void*>(&begin_thread);
  made.stack_pointer = top - 6;
  make_ready(made);
  return made;
}

void Scheduler::make_ready(Thread& thread) {
  const auto stopped = stopped_.find(thread.rank);
  (stopped != stopped_.end() ? stopped->second : ready_).push_back(&thread);
}

void Scheduler::stop(int rank) {
  std::vector<Thread*>& held = stopped_[rank];
  const auto others = std::ranges::stable_partition(ready_, [rank](const Thread* each) { return each->rank != rank; });
  held.insert(held.end(), others.begin(), others.end());
  ready_.erase(others.begin(), others.end());
  if (current_ != nullptr && current_->rank == rank) yield(true);
}

void Scheduler::proceed(int rank) {
  const auto found = stopped_.find(rank);
  if (found == stopped_.end()) return;
  const std::vector<Thread*> held = std::move(found->second);
  stopped_.erase(found);
  ready_.insert(ready_.end(), held.begin(), held.end());
}

void Scheduler::kill(int rank) {
  for (const auto& each : threads_) {
    if (each->rank != rank || each->ended) continue;
    leave_blocked(*each);
    stop_timer(*each);
    end(*each);
  }
  std::erase_if(ready_, [rank](const Thread* each) { return each->rank == rank; });
  stopped_.erase(rank);
}

Thread* Scheduler::choose() {
  if (ready_.empty()) return nullptr;
  std::size_t at = random_.below(ready_.size());
  if (strategy_ == Strategy::kPriorities) {
    const auto best = std::ranges::max_element(ready_, {}, [](const Thread* each) { return each->priority; });
    at = static_cast<std::size_t>(best - ready_.begin());
  } else if (strategy_ == Strategy::kStarved && ready_[at]->rank == starved_ && !random_.one_in(64)) {
    at = random_.below(ready_.size());
  }
  Thread* const chosen = ready_[at];
  ready_[at] = ready_.back();
  ready_.pop_back();
  return chosen;
}

void Scheduler::run(const std::vector<Thread*>& until) {
  if (strategy_ == Strategy::kStarved) starved_ = until[random_.below(until.size())]->rank;
  for (Thread* const each : until) each->awaited = true;
  for (awaited_ = until.size(); awaited_ > 0;) {
    now_ += step_;
    if (ready_.empty() && !timers_.empty()) now_ = std::max(now_, timers_.begin()->first.first);
    while (!timers_.empty() && timers_.begin()->first.first <= now_) {
      idle_yields_ = 0;
      const auto call = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      call();
    }
    Thread* const next = choose();
    if (next == nullptr && timers_.empty()) {
      report();
      host::fail("no thread can go on");
    }
    if (now_ > longest_) {
      report();
      host::fail("the program has not ended in the given virtual time");
    }
    if (next == nullptr) continue;
    ++steps_;
    trace_ = (trace_ ^ static_cast<std::uint64_t>(next->id)) * 0x100000001b3;
    trace_ = (trace_ ^ static_cast<std::uint64_t>(now_)) * 0x100000001b3;
    switch_to(*next);
    if (next->ended) munmap(next->stack, kStack);
  }
  use_storage(in_use_ = home_.storage);
}

void Scheduler::switch_to(Thread& thread) {
  current_ = &thread;
  thread.begun = true;
  if (std::exchange(in_use_, thread.storage) != thread.storage) use_storage(thread.storage);
  simulation_switch(&home_.stack_pointer, thread.stack_pointer);
}

void Scheduler::switch_back() {
  Thread& self = *current_;
  do {
    current_ = nullptr;  // the simulation goes on with the thread's storage
    simulation_switch(&self.stack_pointer, home_.stack_pointer);
    if (reporting_) print_stack();
  } while (reporting_);
}

void Scheduler::yield(bool idle) {
  if (current_ == nullptr || alone_ > 0) return;
  if (!idle && !random_.one_in(preempts_)) return;
  // Towards the next event: more for each poll since the last one, and less the more threads poll.
  if (idle && !timers_.empty() && timers_.begin()->first.first > now_) {
    const Time most = leap_ + std::min<Time>(++idle_yields_ * 10, 50 * kMicrosecond);
    now_ += std::min(most, (timers_.begin()->first.first - now_) / static_cast<Time>(ready_.size() + 1));
  }
  // A thread that polls must let the others run. The priorities of the others change seldom.
  if (idle || random_.one_in(1000)) current_->priority = --lowest_;
  make_ready(*current_);
  switch_back();
}

std::int64_t Scheduler::interrupt(std::int64_t mean) {
  const auto next = 1 + static_cast<std::int64_t>(random_.below(2 * static_cast<std::uint64_t>(mean)));
  if (current_ == nullptr || alone_ > 0) return next;
  if (random_.one_in(8)) current_->priority = --lowest_;
  make_ready(*current_);
  switch_back();
  return next;
}

void Scheduler::stop_timer(Thread& thread) {
  if (thread.has_timer) timers_.erase(thread.timer);
  thread.has_timer = false;
}

void Scheduler::leave_blocked(Thread& thread) {
  const auto found = blocked_.find(thread.key);
  if (found == blocked_.end()) return;
  std::erase(found->second, &thread);
  if (found->second.empty()) blocked_.erase(found);
}

bool Scheduler::block(Key key, Time deadline, const char* doing) {
  Thread& self = *current_;
  if (deadline <= now_) {
    yield(true);
    return false;
  }
  self.woken = false;
  self.key = key;
  self.doing = doing;
  if (key != Key{}) blocked_[key].push_back(&self);
  if (deadline != kNever) {
    const auto awake = [this, &self] {
      self.has_timer = false;
      leave_blocked(self);
      make_ready(self);
    };
    self.timer = timers_.emplace(std::pair(deadline, ++timers_made_), awake).first;
    self.has_timer = true;
  }
  const int alone = std::exchange(alone_, 0);  // what it waits for is of the others
  switch_back();
  alone_ = alone;
  self.doing = "runs";
  return self.woken;
}

int Scheduler::wake(Key key, int most) {
  const auto found = blocked_.find(key);
  if (found == blocked_.end()) return 0;
  std::vector<Thread*>& waiting = found->second;
  idle_yields_ = 0;
  int count = 0;
  for (; count < most && !waiting.empty(); ++count) {
    const std::size_t at = random_.below(waiting.size());
    Thread& woken = *waiting[at];
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(at));
    stop_timer(woken);
    woken.woken = true;
    make_ready(woken);
  }
  if (waiting.empty()) blocked_.erase(found);
  return count;
}

void Scheduler::at(Time time, std::function<void()> call) {
  timers_.emplace(std::pair(std::max(time, now_ + 1), ++timers_made_), std::move(call));
}

void Scheduler::end(Thread& thread) {
  thread.ended = true;
  if (thread.awaited) --awaited_;
}

void Scheduler::end_thread() {
  end(*current_);
  wake(key_of(current_));
  switch_back();
  std::abort();
}

void Scheduler::report() {
  reporting_ = true;
  std::fprintf(stderr, "simulation: after %.6f s of virtual time, %llu steps:\n", static_cast<double>(now_) / 1e9,
               static_cast<unsigned long long>(steps_));
  if (current_ == nullptr) print_stack();  // while the program is loaded
  Thread* const running = current_;
  for (const auto& each : threads_) {
    if (each->ended) continue;
    std::fprintf(stderr, "rank %d, %s (thread %d) %s:\n", each->rank, each->name.c_str(), each->id, each->doing);
    if (each.get() == running)
      print_stack();
    else if (each->begun)
      switch_to(*each);
  }
  current_ = running;
  if (running != nullptr) use_storage(in_use_ = running->storage);
  reporting_ = false;
}

}  // namespace simulation
