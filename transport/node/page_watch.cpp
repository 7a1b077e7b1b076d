// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/page_watch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <link.h>
#include <linux/userfaultfd.h>
#include <memory>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "transport/base/files.hpp"
#include "transport/base/log.hpp"

namespace farside {
namespace {

using Clock = std::chrono::steady_clock;

// The watch pauses while it has taken more than kAllowance and one part in kShare of its life, but not before it has
// made kFirst steps: on a busy machine each takes milliseconds.
constexpr std::chrono::milliseconds kAllowance{500};
constexpr int kShare = 16, kFirst = 750;
constexpr std::uint64_t kFeatures = UFFD_FEATURE_EXACT_ADDRESS | UFFD_FEATURE_THREAD_ID | std::uint64_t{1} << 16;
constexpr std::uint64_t kDontWake = 1, kPage = 4096;
constexpr std::size_t kThreads = 32, kHits = 16, kSignalStack = std::size_t{1} << 16;
#if defined(__x86_64__)
constexpr greg_t kTrapFlag = 0x100;
#endif

// Returns the descriptor, or none and the reason.
UniqueFd open_faults(std::string* why) {
  UniqueFd faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!faults.valid()) {
    const UniqueFd device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device.valid()) faults = UniqueFd(ioctl(device.get(), _IO(0xAA, 0x00), O_CLOEXEC));
  }
  if (!faults.valid()) {
    *why = fmt::format("userfaultfd(2): {}; sysctl vm.unprivileged_userfaultfd=1 allows it", std::strerror(errno));
    return faults;
  }
  uffdio_api api{UFFD_API, kFeatures, 0};
  if (sysconf(_SC_PAGESIZE) == kPage && ioctl(faults.get(), UFFDIO_API, &api) == 0) return faults;
  *why = "the kernel has no UFFDIO_MOVE; Linux 6.8 has, with pages of 4 KiB";
  return UniqueFd();
}

// The stack pointer and the instruction of a thread that waits in a page fault; zeros if it is in a system call.
std::pair<std::uint64_t, std::uint64_t> place_of(int thread) {
  std::array<char, 64> name{};
  std::array<char, 256> text{};
  std::snprintf(name.data(), name.size(), "/proc/self/task/%d/syscall", thread);
  const int file = open(name.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t bytes = read(file, text.data(), text.size() - 1);
  close(file);
  if (bytes < 4 || std::strncmp(text.data(), "-1 ", 3) != 0) return {};
  char* behind = nullptr;
  const std::uint64_t stack = std::strtoull(text.data() + 3, &behind, 16);
  return {stack, std::strtoull(behind, nullptr, 16)};
}

// The code of the library that contains an address; empty if it is null.
PageWatch::Range code_around(const void* address) {
  PageWatch::Range found{static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(address)), 0};
  const auto look = [](dl_phdr_info* library, std::size_t, void* to) {
    auto& range = *static_cast<PageWatch::Range*>(to);
    for (const auto& part : std::span(library->dlpi_phdr, library->dlpi_phnum)) {
      const std::uint64_t first = library->dlpi_addr + part.p_vaddr, last = first + part.p_memsz;
      if (range.last == 0 && part.p_type == PT_LOAD && first <= range.first && range.first < last)
        range = {first, last};
    }
    return 0;
  };
  (void)dl_iterate_phdr(look, &found);
  return found;
}

// Memory without a page in common with others; null if there is none.
void* map(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED ? memory : nullptr;
}

}  // namespace

struct PageWatch::State {
  // UFFDIO_MOVE, newer than Debian 12's <linux/userfaultfd.h>.
  struct Move {
    std::uint64_t to, from, bytes, mode;
    std::int64_t moved;
  };
  static constexpr unsigned long kMove = _IOWR(UFFDIO, 0x05, Move);
  struct Slot {
    std::atomic<std::uint64_t> page{0};  // 0: free
    std::atomic<bool> back{false};       // for one instruction
    std::uint64_t hidden = 0;            // where the page is while it is away
    Move away{};                         // no local variable: the kernel writes to it, perhaps to the page moved away
  };

  static inline constinit State* of_process = nullptr;  // signal handlers and those of fork(2) get no argument
  UniqueFd faults;
  Range runtime{}, own{};  // the code of the two libraries
  std::array<Slot, kPages> slots;
  std::array<Range, kRanges> ranges{};
  std::array<Hit, kHits> hits{};
  std::array<std::atomic<int>, kThreads> threads{};  // that may be stepped: they have a stack for signals
  std::atomic<std::size_t> used_ranges{0}, used_hits{0};
  std::atomic<int> steps{0}, stepped{0};  // left; made
  std::atomic<Clock::duration> taken{};   // by them and arm()
  std::atomic<std::uint64_t> step_at{0};  // the instruction that is to be executed alone
  std::atomic<bool> returned{false};      // from arm(), which had this frame, to the program
  std::uint64_t frame = 0;
  std::atomic<bool> moving{false};  // disarm() or the handler moves pages
  Clock::time_point step_begun;
  const Clock::time_point begun = Clock::now();

  bool registered(std::uint64_t page) const {
    uffdio_register at{{page, kPage}, UFFDIO_REGISTER_MODE_MISSING, 0};
    return ioctl(faults.get(), UFFDIO_REGISTER, &at) == 0;
  }
  // One attempt: what the kernel pins stays where it is.
  void take_away(Slot& slot) const {
    slot.away = {slot.hidden, slot.page, kPage, 0, 0};
    (void)ioctl(faults.get(), kMove, &slot.away);
  }
  // False if no page is away, or its place is gone.
  bool bring_back(const Slot& slot, std::uint64_t page, std::uint64_t mode) const {
    Move move{page, slot.hidden, kPage, mode, 0};
    while (ioctl(faults.get(), kMove, &move) != 0) {
      if (errno != EAGAIN && errno != EBUSY) return false;
    }
    return true;
  }
  bool may_step(int thread) const {
    return std::ranges::any_of(threads, [&](const std::atomic<int>& each) { return each == thread; });
  }
  void hold() {
    while (moving.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void run();
  void meet(const uffd_msg& message);
  void disarm();
  static void on_trap(int signal, siginfo_t* info, void* context);
};

void PageWatch::State::run() {
  for (uffd_msg message{};;) {
    const ssize_t bytes = read(faults.get(), &message, sizeof message);
    if (bytes == sizeof message && message.event == UFFD_EVENT_PAGEFAULT) meet(message);
    if (bytes < 0 && errno != EINTR && errno != EAGAIN) return;
  }
}

// The thread that runs this holds no lock, and touches no memory that may be away.
void PageWatch::State::meet(const uffd_msg& message) {
  const std::uint64_t address = message.arg.pagefault.address;
  const int thread = static_cast<int>(message.arg.pagefault.feat.ptid);
  uffdio_range range{address & ~(kPage - 1), kPage};
  Slot* const slot = std::ranges::find(slots, range.start, [](const Slot& each) { return each.page.load(); });
  if (slot != slots.end()) {  // else disarm() has brought it back
    const auto [stack, instruction] = place_of(thread);
    const auto used = std::span(ranges).first(used_ranges);
    const bool watched =
        std::ranges::any_of(used, [&](const Range& each) { return each.first <= address && address < each.last; });
    if (watched && instruction != 0 && used_hits < kHits)
      hits[used_hits++] = {address, instruction, (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0};
    const auto by = [at = instruction](const Range& code) { return code.first <= at && at < code.last; };
    if (stack > frame && !by(own)) returned = true;
    const bool in_call = by(runtime) || (returned && by(own));
    const bool steps_now = !watched && !in_call && instruction != 0 && !moving && steps > 0 && may_step(thread);
    if (steps_now) {
      --steps;
      ++stepped;
      step_begun = Clock::now();
      slot->back = true;
      step_at = instruction;
    }
    if (!bring_back(*slot, range.start, kDontWake) && !moving.exchange(true)) {
      // The program has given the page back to the kernel.
      uffdio_zeropage zero{range, UFFDIO_ZEROPAGE_MODE_DONTWAKE, 0};
      (void)ioctl(faults.get(), UFFDIO_ZEROPAGE, &zero);
      moving = false;
    }
    // The signal is pending when the thread wakes, so it comes before the instruction is tried again.
    if (steps_now) (void)syscall(SYS_tgkill, getpid(), thread, SIGTRAP);
  }
  (void)ioctl(faults.get(), UFFDIO_WAKE, &range);
}

void PageWatch::State::on_trap([[maybe_unused]] int signal, [[maybe_unused]] siginfo_t* info,
                               [[maybe_unused]] void* context) {
#if defined(__x86_64__)
  const int kept = errno;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  State& state = *of_process;
  if (info->si_code == SI_TKILL && info->si_pid == getpid()) {
    if (static_cast<std::uint64_t>(registers[REG_RIP]) == state.step_at.exchange(0)) registers[REG_EFL] |= kTrapFlag;
  } else if (info->si_code == TRAP_TRACE) {
    registers[REG_EFL] &= ~kTrapFlag;
    state.hold();
    for (Slot& slot : state.slots) {
      if (slot.back.exchange(false) && slot.page != 0) state.take_away(slot);
    }
    state.moving = false;
    // The thread has waited for meet() about as long before.
    state.taken = state.taken.load() + 2 * (Clock::now() - state.step_begun);
  } else {  // a breakpoint
    std::signal(signal, SIG_DFL);
    (void)raise(signal);
  }
  errno = kept;
#endif
}

void PageWatch::State::disarm() {
  hold();
  used_ranges = 0;
  for (Slot& slot : slots) {
    if (slot.page == 0) continue;
    uffdio_range range{slot.page, kPage};
    (void)bring_back(slot, range.start, 0);
    slot.page = 0;
    slot.back = false;
    (void)ioctl(faults.get(), UFFDIO_UNREGISTER, &range);
    // If the program has unmapped its page meanwhile.
    (void)madvise(reinterpret_cast<void*>(static_cast<std::uintptr_t>(slot.hidden)), kPage, MADV_DONTNEED);
  }
  moving = false;
}

std::string PageWatch::why_not() {
  std::string why;
  (void)open_faults(&why);
  return why;
}

PageWatch::PageWatch(const void* runtime) {
  std::string why;
  UniqueFd faults = open_faults(&why);
  constexpr std::size_t kOwn = (sizeof(State) + kPage - 1) / kPage * kPage, kAll = kOwn + kPages * kPage;
  void* const memory = faults.valid() ? map(kAll) : nullptr;
  if (memory == nullptr) return;
  const auto end = [](State* made) { std::destroy_at(made), munmap(made, kAll); };
  std::unique_ptr<State, decltype(end)> made(new (memory) State, end);
  State* const state = made.get();
  state->faults = std::move(faults);
  state->runtime = code_around(runtime);
  state->own = code_around(reinterpret_cast<const void*>(&code_around));
  for (std::size_t i = 0; i < kPages; ++i) {
    state->slots[i].hidden = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory)) + kOwn + i * kPage;
    if (!state->registered(state->slots[i].hidden)) return;
  }
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const auto run = [](void* of) -> void* { return static_cast<State*>(of)->run(), nullptr; };
  const int failed = pthread_create(&thread, nullptr, run, state);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return;
  State::of_process = made.release();  // the thread uses it
  if (pthread_atfork([] { State::of_process->disarm(); }, nullptr, nullptr) != 0) return;
  pthread_detach(thread);
  state_ = state;
  struct sigaction action {};
  if (sigaction(SIGTRAP, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_sigaction = State::on_trap;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  (void)sigaction(SIGTRAP, &action, nullptr);
}

void PageWatch::arm(std::span<const Range> ranges) {
  if (state_ == nullptr || ranges.empty()) return;
  State& state = *state_;
  if (const int self = gettid(); !state.may_step(self)) {
    stack_t stack{};
    if (sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_DISABLE) != 0) {
      stack = {map(kSignalStack), 0, kSignalStack};
      if (stack.ss_sp != nullptr) (void)sigaltstack(&stack, nullptr);
    }
    const auto free = std::ranges::find(state.threads, 0, [](const std::atomic<int>& each) { return each.load(); });
    if (stack.ss_sp != nullptr && free != state.threads.end()) *free = self;
  }
  const Clock::duration may_take = kAllowance + (Clock::now() - state.begun) / kShare;
  if (state.stepped > kFirst && state.taken.load() > may_take) {
    if (Log::is_new("early loads"))
      log(LogLevel::kWarn, "early loads of result buffers are seen less often from now on: it takes too much time");
    return;
  }
  state.taken = state.taken.load() + std::chrono::microseconds(100);  // by this call
  state.steps = kSteps;
  state.returned = false;
  state.frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  std::size_t used = 0, pages = 0;
  for (const Range& range : ranges.first(std::min(ranges.size(), kRanges))) {
    state.ranges[used++] = range;
    for (std::uint64_t page = range.first & ~(kPage - 1); page < range.last && pages < kPages; page += kPage) {
      const auto chosen = std::span(state.slots).first(pages);
      if (std::ranges::any_of(chosen, [&](const State::Slot& each) { return each.page == page; })) continue;
      if (state.registered(page)) state.slots[pages++].page = page;
    }
  }
  state.used_ranges = used;
  for (std::size_t i = 0; i < pages; ++i) state.take_away(state.slots[i]);
}

void PageWatch::disarm() {
  if (state_ != nullptr) state_->disarm();
}

std::span<const PageWatch::Hit> PageWatch::take() {
  if (state_ == nullptr) return {};
  return std::span(state_->hits).first(state_->used_hits.exchange(0));
}

}  // namespace farside
