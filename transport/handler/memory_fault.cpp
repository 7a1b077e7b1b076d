// SPDX-License-Identifier: BSD-3-Clause
#include "transport/handler/memory_fault.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "transport/base/imported_call.hpp"
#include "transport/base/log.hpp"

namespace farside {
namespace {

struct sigaction before_segv, before_bus;

}  // namespace

void MemoryFault::expect() {
  static std::mutex mutex;
  static bool set = false;
  const std::scoped_lock held(mutex);
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_sigaction == &MemoryFault::on_signal) continue;
    // A handler that was set later may pass faults on to this one, which must not pass them back.
    struct sigaction& before = signal == SIGBUS ? before_bus : before_segv;
    if (set && now.sa_sigaction != before.sa_sigaction) continue;
    before = now;
    struct sigaction ours {};
    ours.sa_sigaction = &MemoryFault::on_signal;
    sigemptyset(&ours.sa_mask);
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    (void)sigaction(signal, &ours, nullptr);
  }
  set = true;
}

void MemoryFault::report(const void* at) {
  std::array<char, 256> line{};
  const int bytes = std::snprintf(line.data(), line.size(),
                                  "farside: error: an access to %p for a peer, by RDMA over TCP, ends this process: "
                                  "the memory is not mapped, not writable, or beyond the end of a file\n",
                                  at);
  (void)!write(STDERR_FILENO, line.data(), static_cast<std::size_t>(bytes));
}

void MemoryFault::report_sends_of(const void* inside) {
  static std::mutex redirecting;  // it changes the protection of pages meanwhile
  ImportedCall call(inside, "sendmsg");
  const std::scoped_lock held(redirecting);
  if (!call.redirect(reinterpret_cast<void*>(&MemoryFault::send)))
    log(LogLevel::kInfo, "a peer that reads memory with holes by RDMA over TCP may wait for ever");
}

ssize_t MemoryFault::send(int socket, const msghdr* message, int flags) {
  const ssize_t sent = ::sendmsg(socket, message, flags);
  if (sent >= 0 || errno != EFAULT) [[likely]]
    return sent;
  const auto is_unreadable = [](std::byte* at) {
    std::byte copy{};
    const iovec here{&copy, 1}, there{at, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1;
  };
  for (const iovec& part : std::span(message->msg_iov, message->msg_iovlen)) {
    auto* const begin = static_cast<std::byte*>(part.iov_base);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    // The first byte, and those where the next pages begin.
    for (std::size_t at = 0; at < part.iov_len; at += page - reinterpret_cast<std::uintptr_t>(begin + at) % page) {
      if (!is_unreadable(begin + at)) continue;
      report(begin + at);
      std::abort();
    }
  }
  errno = EFAULT;
  return sent;
}

void MemoryFault::on_signal(int signal, siginfo_t* information, void* context) {
  const bool sent = information->si_code <= 0;  // by kill(2) and the like
  MemoryFault* const fault = this_thread.fault;
  const auto* const at = static_cast<const std::byte*>(information->si_addr);
  if (!sent && fault != nullptr && at >= fault->begin_ &&
      static_cast<std::uint64_t>(at - fault->begin_) < fault->bytes_) {
    fault->address_ = at;
    // Otherwise what is blocked during this handler stays blocked.
    (void)pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    __builtin_longjmp(fault->place_.data(), 1);
  }
  if (!sent && this_thread.reports_faults) report(information->si_addr);
  const struct sigaction& before = signal == SIGBUS ? before_bus : before_segv;
  if (before.sa_handler == SIG_IGN && sent) return;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return (before.sa_flags & SA_SIGINFO) != 0 ? before.sa_sigaction(signal, information, context)
                                               : before.sa_handler(signal);
  }
  // The access is repeated when this returns, and the default action follows.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  (void)sigaction(signal, &standard, nullptr);
  if (sent) (void)raise(signal);
}

}  // namespace farside
