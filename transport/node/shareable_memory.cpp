// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/shareable_memory.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <pthread.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "transport/base/threads.hpp"

namespace farside {
namespace {

// All objects, linked by next_. A forking thread holds the mutex of the list, then those of the objects.
constinit std::mutex all_mutex;
constinit ShareableMemory* all_memory = nullptr;
sigset_t before_the_fork;  // the forking thread's signals, guarded by all_mutex

// A system call without libc's function, which libraries interpose. The process has the same pages at any time.
bool map_file_privately(int fd, std::size_t bytes, void* to) {
  return syscall(SYS_mmap, to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, 0) != -1;
}

// Returns the arena that contains the address, or the end.
template <class Arenas>
auto arena_of(Arenas& arenas, const void* base) {
  const auto* const at = static_cast<const std::byte*>(base);
  auto arena = arenas.upper_bound(at);
  if (arena == arenas.begin()) return arenas.end();
  --arena;
  return static_cast<std::size_t>(at - arena->first) < arena->second.mapping.bytes() ? arena : arenas.end();
}

constexpr std::size_t kMinAlignment = 64;
constexpr std::size_t kSmallestArena = std::size_t{1} << 20;
// More only arise if the process forks so often between allocations.
constexpr std::size_t kMostArenas = 1000;

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::size_t round_down(std::size_t bytes, std::size_t unit) { return bytes / unit * unit; }
std::size_t round_up(std::size_t bytes, std::size_t unit) { return round_down(bytes + unit - 1, unit); }

// Whether a shared mapping has exactly this place, with the rights that it was made with.
bool is_as_mapped(const Mapping& mapping) {
  const auto begin = reinterpret_cast<std::uintptr_t>(mapping.base());
  std::ifstream maps("/proc/thread-self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &from, &to, rights) == 3 && from == begin)
      return to == begin + mapping.bytes() && std::string_view(rights) == "rw-s";
  }
  return false;
}

}  // namespace

// Registered as early as possible (see the header). After an error (no memory), forked processes share the memory.
const bool ShareableMemory::handles_forks_ = pthread_atfork(
                                                 before_fork, [] { after_fork(false); }, [] { after_fork(true); }) == 0;

ShareableMemory::ShareableMemory() {
  const HeldWithoutSignals held(all_mutex);
  next_ = all_memory;
  all_memory = this;
}

ShareableMemory::~ShareableMemory() {
  const HeldWithoutSignals held(all_mutex);
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
  const PatientAllocation must_not_throw;
  for (ShareableMemory* each = all_memory; each != nullptr; each = each->next_) each->prepare_fork();
  UntouchedMemory::mutex().lock();
}

// Calls only functions that are safe in a signal handler: other threads may have held any lock at the fork.
void ShareableMemory::after_fork(bool in_child) {
  UntouchedMemory::mutex().unlock();
  for (ShareableMemory* each = all_memory; each != nullptr; each = each->next_) {
    for (auto& [base, arena] : each->arenas_) {
      if (in_child) arena.map_privately();
    }
    each->mutex_.unlock();
  }
  const sigset_t before = before_the_fork;
  all_mutex.unlock();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Maps privately what may be (see the header).
void ShareableMemory::prepare_fork() {
  mutex_.lock();
  std::optional<bool> remappable;
  for (auto& [base, arena] : arenas_) {
    if (!arena.fd.valid() || arena.users.use_count() > 1) continue;
    if (!remappable) remappable = may_remap_pages();
    if (*remappable && is_as_mapped(arena.mapping)) arena.map_privately();
  }
}

// If the system call failed, for want of memory, the memory would stay shared.
void ShareableMemory::Arena::map_privately() {
  if (!fd.valid() || !map_file_privately(fd.get(), mapping.bytes(), mapping.base())) return;
  untouched.reset();
  fd.reset();
}

void ShareableMemory::Arena::put(std::size_t offset, std::size_t bytes, bool used) {
  if (bytes == 0) return;
  blocks[offset] = {bytes, used};
  if (!used) unused.insert({bytes, offset});
}

// Makes a piece; returns null if no unused block has room.
std::byte* ShareableMemory::Arena::take(std::size_t bytes, std::size_t alignment) {
  // The smallest block that may suffice, and the smallest one that suffices wherever it begins.
  for (const std::size_t least : {bytes, bytes + alignment - 1}) {
    const auto found = unused.lower_bound({least, 0});
    if (found == unused.end()) return nullptr;
    const auto [room, from] = *found;
    const std::size_t gap = -reinterpret_cast<std::uintptr_t>(mapping.base() + from) & (alignment - 1);
    if (gap > room || bytes > room - gap) continue;
    unused.erase(found);
    put(from, gap, false);
    put(from + gap, bytes, true);
    put(from + gap + bytes, room - gap - bytes, false);
    used_bytes += bytes;
    if (untouched) untouched->change_to(used_bytes);
    return mapping.base() + from + gap;
  }
  return nullptr;
}

// Ends a piece, and returns the pages of which it was the last piece. Returns false if none begins at `offset`.
bool ShareableMemory::Arena::give(std::size_t offset) {
  const auto piece = blocks.find(offset);
  if (piece == blocks.end() || !piece->second.used) return false;
  const std::size_t bytes = piece->second.bytes;
  std::size_t begin = offset, end = offset + bytes;
  const auto join = [&](std::map<std::size_t, Block>::iterator block) {
    begin = std::min(begin, block->first);
    end = std::max(end, block->first + block->second.bytes);
    unused.erase({block->second.bytes, block->first});
    blocks.erase(block);
  };
  if (const auto next = std::next(piece); next != blocks.end() && !next->second.used) join(next);
  if (piece != blocks.begin() && !std::prev(piece)->second.used) join(std::prev(piece));
  blocks.erase(piece);
  put(begin, end - begin, false);
  used_bytes -= bytes;
  if (untouched) untouched->change_to(used_bytes);
  const std::size_t page = page_size();
  const std::size_t from = std::max(round_up(begin, page), round_down(offset, page));
  const std::size_t to = std::min(round_down(end, page), round_up(offset + bytes, page));
  if (from >= to) return true;
  if (!fd.valid()) {
    (void)madvise(mapping.base() + from, to - from, MADV_DONTNEED);
  } else {
    (void)fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                    static_cast<off_t>(to - from));
  }
  return true;
}

Result<void*> ShareableMemory::allocate(std::size_t bytes, std::size_t alignment, bool overcommit) {
  // No address space has as much, and below this limit the sums do not overflow.
  if (bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) {
    return Error{ErrorKind::kNoMemory,
                 fmt::format("{} bytes at a multiple of {} are more than an address space", bytes, alignment)};
  }
  const std::size_t page = page_size();
  const std::size_t unit = bytes < page ? kMinAlignment : page;
  bytes = round_up(bytes, unit);
  alignment = std::max(alignment, unit);
  const HeldWithoutSignals held(mutex_);
  const Status enough = check_memory_need(find_memory_need(bytes));
  if (!enough && !overcommit) return enough.error();
  std::size_t all = 0;
  for (auto& [base, arena] : arenas_) {
    all += arena.mapping.bytes();
    if (!arena.fd.valid() || !enough) continue;
    if (std::byte* const piece = arena.take(bytes, alignment)) return static_cast<void*>(piece);
  }
  if (arenas_.size() >= kMostArenas)
    return Error{ErrorKind::kNoMemory, fmt::format("this process has {} arenas, the most", kMostArenas)};
  // Limits of the process (RLIMIT_FSIZE, RLIMIT_AS) may allow this piece and no more.
  const std::size_t least = round_up(bytes, page);
  const std::size_t size = enough ? std::max({least, kSmallestArena, round_up(all / 4, page)}) : least;
  Result<Segment> made = make_segment(size, {}, 0, alignment);
  if (!made && size > least) made = make_segment(least, {}, 0, alignment);
  if (!made) return made.error();
  std::byte* const base = made.value().mapping.base();
  Arena& arena = arenas_[base];
  arena.mapping = std::move(made.value().mapping);
  arena.fd = std::move(made.value().fd);
  if (enough) arena.untouched.emplace(arena.fd.get(), 0);
  arena.users = std::make_shared<char>();
  arena.put(0, arena.mapping.bytes(), false);
  return static_cast<void*>(arena.take(bytes, alignment));
}

bool ShareableMemory::free(const void* base) {
  const HeldWithoutSignals held(mutex_);
  const auto found = arena_of(arenas_, base);
  if (found == arenas_.end()) return false;
  Arena& arena = found->second;
  if (!arena.give(static_cast<std::size_t>(static_cast<const std::byte*>(base) - found->first))) return false;
  if (arena.used_bytes == 0) arenas_.erase(found);
  return true;
}

bool ShareableMemory::contains(const void* base) const {
  const HeldWithoutSignals held(mutex_);
  return arena_of(arenas_, base) != arenas_.end();
}

std::optional<ShareableMemory::Place> ShareableMemory::find(const void* base, std::size_t bytes) const {
  const HeldWithoutSignals held(mutex_);
  const auto found = arena_of(arenas_, base);
  if (found == arenas_.end() || !found->second.fd.valid()) return std::nullopt;
  const Arena& arena = found->second;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(base) - found->first);
  const auto& [begin, block] = *std::prev(arena.blocks.upper_bound(offset));
  const std::size_t before = offset - begin;
  if (!block.used || before > block.bytes || bytes > block.bytes - before) return std::nullopt;
  return Place{arena.fd.get(), offset, arena.users};
}

}  // namespace farside
