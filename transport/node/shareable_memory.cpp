// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/shareable_memory.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/signals_blocked.hpp"
#include "transport/node/memory_limits.hpp"

namespace farside {
namespace {

// All objects, linked by next_. A forking thread holds the mutex of the list, then those of the objects.
constinit std::mutex all_mutex;
constinit ShareableMemory* all_memory = nullptr;
sigset_t before_the_fork;  // the forking thread's signals, guarded by all_mutex

// Locks a mutex and blocks all signals: if a signal handler forked while its thread held the mutex, it would deadlock.
class Held {
 public:
  explicit Held(std::mutex& mutex) : held_(mutex) {}

 private:
  SignalsBlocked blocked_;
  std::scoped_lock<std::mutex> held_;
};

// System calls without libc's functions, which libraries interpose: UCX's mremap drops the fifth argument, and locks.
void* move_mapping(void* from, std::size_t bytes, void* to) {
  return reinterpret_cast<void*>(
      syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to));  // NOLINT(performance-no-int-to-ptr)
}
void map_privately(int fd, std::uint64_t offset, std::size_t bytes, void* to) {
  (void)syscall(SYS_mmap, to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, offset);
}

// Copies a part of a file into private memory. Holes become memory without pages. Returns null if there is no memory,
// or if the file cannot be read. The function reads the file, because the program may have protected the memory.
void* copy_of_part(int fd, std::uint64_t offset, std::size_t bytes) {
  void* const copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy == MAP_FAILED) return nullptr;
  const auto end = static_cast<off_t>(offset + bytes);
  for (auto at = static_cast<off_t>(offset); at < end;) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return copy;  // holes up to the end of the file
    if (data >= end) return copy;
    const off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    at = data;
    for (const off_t until = std::min(hole, end); at < until;) {
      const auto into = static_cast<std::byte*>(copy) + (static_cast<std::uint64_t>(at) - offset);
      const ssize_t got = pread(fd, into, static_cast<std::size_t>(until - at), at);
      if (got <= 0) break;
      at += got;
    }
    if (hole < 0 || at < std::min(hole, end)) {
      munmap(copy, bytes);
      return nullptr;
    }
  }
  return copy;
}

}  // namespace

// Registered as early as possible (see the header). After an error (no memory), forked processes share the memory.
const bool ShareableMemory::handles_forks_ =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;

ShareableMemory::ShareableMemory() {
  const Held held(all_mutex);
  next_ = all_memory;
  all_memory = this;
}

ShareableMemory::~ShareableMemory() {
  const Held held(all_mutex);
  ShareableMemory** link = &all_memory;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
}

void ShareableMemory::before_fork() {
  sigset_t none, before;
  sigfillset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &before);
  all_mutex.lock();
  before_the_fork = before;
  for (ShareableMemory* each = all_memory; each != nullptr; each = each->next_) each->make_copies();
  UntouchedMemory::mutex().lock();
}

void ShareableMemory::after_fork_in_parent() {
  UntouchedMemory::mutex().unlock();
  for (ShareableMemory* each = all_memory; each != nullptr; each = each->next_) each->drop_copies();
  const sigset_t before = before_the_fork;
  all_mutex.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Calls only functions that are safe in a signal handler: other threads may have held any lock at the fork.
void ShareableMemory::after_fork_in_child() {
  UntouchedMemory::mutex().unlock();
  UntouchedMemory::forget_all();
  for (ShareableMemory* each = all_memory; each != nullptr; each = each->next_) each->move_to_copies();
  const sigset_t before = before_the_fork;
  all_mutex.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ShareableMemory::make_copies() {
  mutex_.lock();
  if (!fd_.valid()) return;
  struct stat info {};
  const std::uint64_t used = fstat(fd_.get(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
  bool all_copied = enough_memory_for(used);
  for (auto& [base, allocation] : allocations_) {
    if (!allocation.in_file) continue;
    if (all_copied) allocation.copy = copy_of_part(fd_.get(), allocation.offset, allocation.mapping.bytes());
    all_copied = all_copied && allocation.copy != nullptr;
  }
  static std::atomic<bool> logged{false};
  if (!all_copied && !logged.exchange(true)) {
    log(LogLevel::kWarn,
        "fork: there is no memory for a copy of {} bytes that MPI_Alloc_mem gave; the child may see what this process "
        "stores there from now on",
        used);
  }
}

void ShareableMemory::drop_copies() {
  for (auto& [base, allocation] : allocations_) {
    if (allocation.copy != nullptr) munmap(allocation.copy, allocation.mapping.bytes());
    allocation.copy = nullptr;
  }
  mutex_.unlock();
}

void ShareableMemory::move_to_copies() {
  for (auto& [base, allocation] : allocations_) {
    if (!allocation.in_file) continue;
    const std::size_t bytes = allocation.mapping.bytes();
    void* const at = allocation.mapping.base();
    // Neither call allocates memory, so neither fails. If one failed, the memory would stay shared.
    if (allocation.copy == nullptr || move_mapping(allocation.copy, bytes, at) == MAP_FAILED)
      map_privately(fd_.get(), allocation.offset, bytes, at);
    allocation.copy = nullptr;
    allocation.in_file = false;
  }
  untouched_.reset();
  fd_.reset();
  bytes_ = end_ = 0;
  mutex_.unlock();
}

Result<void*> ShareableMemory::allocate(std::size_t bytes, std::size_t alignment) {
  const Held held(mutex_);
  if (!fd_.valid()) {
    Result<UniqueFd> made = make_memory_file();
    if (!made) return made.error();
    fd_ = std::move(made.value());
    untouched_.emplace(fd_.get(), 0);
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // No address space has as much, and below this limit the sums do not overflow.
  if (bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("{} bytes at a multiple of {} are more than an address space", bytes, alignment)};
  }
  Result<Mapping> mapping = extend_memory_file(fd_.get(), end_, (bytes + page - 1) / page * page, alignment);
  if (!mapping) return mapping.error();
  std::byte* base = mapping.value().base();
  const std::uint64_t offset = end_;
  end_ += mapping.value().bytes();
  bytes_ += mapping.value().bytes();
  untouched_->change_to(bytes_);
  allocations_.emplace(base, Allocation{std::move(mapping.value()), offset});
  return static_cast<void*>(base);
}

bool ShareableMemory::free(const void* base) {
  const Held held(mutex_);
  const auto found = allocations_.find(static_cast<const std::byte*>(base));
  if (found == allocations_.end()) return false;
  const Allocation& allocation = found->second;
  // Returns the pages to the kernel while the file stays. (If this fails, they are returned with the last piece.)
  if (allocation.in_file) {
    (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(allocation.offset),
                    static_cast<off_t>(allocation.mapping.bytes()));
    bytes_ -= allocation.mapping.bytes();
    untouched_->change_to(bytes_);
  }
  allocations_.erase(found);
  if (!allocations_.empty()) return true;
  // After the last piece the state is that before the first one. The next piece gets a new file.
  untouched_.reset();
  fd_.reset();
  end_ = 0;
  return true;
}

std::optional<ShareableMemory::Place> ShareableMemory::find(const void* base, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(base);
  const Held held(mutex_);
  auto behind = allocations_.upper_bound(begin);
  if (behind == allocations_.begin()) return std::nullopt;
  const auto& [start, allocation] = *std::prev(behind);
  if (!allocation.in_file) return std::nullopt;
  const auto before = static_cast<std::size_t>(begin - start);
  if (before > allocation.mapping.bytes() || bytes > allocation.mapping.bytes() - before) return std::nullopt;
  return Place{fd_.get(), allocation.offset + before};
}

}  // namespace farside
