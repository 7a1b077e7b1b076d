// SPDX-License-Identifier: BSD-3-Clause
// Entry points: synchronization calls (MPI 4.0 section 12.5).
#include "pmpi/entries/entry.hpp"

namespace farside::pmpi {
namespace {

// The slow paths.
[[gnu::noinline]] int fence(int assert, MPI_Win win) {
  return on_window(
      win, "MPI_Win_fence", [&](Window& w) { return w.fence(assert); }, &Runtime::Win_fence, assert, win);
}
[[gnu::noinline]] int continue_fence(Window& window, std::uint64_t word) {
  return in_call(window, "MPI_Win_fence", [&](Window& w) { return w.continue_fence(word); });
}
[[gnu::noinline]] int post(MPI_Group group, int assert, MPI_Win win) {
  return on_window(
      win, "MPI_Win_post", [&](Window& w) { return w.post(group, assert); }, &Runtime::Win_post, group, assert, win);
}
[[gnu::noinline]] int start(MPI_Group group, int assert, MPI_Win win) {
  return on_window(
      win, "MPI_Win_start", [&](Window& w) { return w.start(group, assert); }, &Runtime::Win_start, group, assert, win);
}
[[gnu::noinline]] int complete_slowly(MPI_Win win) {
  return on_window(
      win, "MPI_Win_complete", [](Window& w) { return w.complete(); }, &Runtime::Win_complete, win);
}
[[gnu::noinline]] int wait_slowly(MPI_Win win) {
  return on_window(
      win, "MPI_Win_wait", [](Window& w) { return w.wait(); }, &Runtime::Win_wait, win);
}
[[gnu::noinline]] int lock(int lock_type, int rank, int assert, MPI_Win win) {
  return on_window(
      win, {"MPI_Win_lock", rank}, [&](Window& w) { return w.lock(lock_type, rank, assert); }, &Runtime::Win_lock,
      lock_type, rank, assert, win);
}
[[gnu::noinline]] int lock_contended(Window& window, int lock_type, int rank) {
  return in_call(window, {"MPI_Win_lock", rank}, [&](Window& w) { return w.lock_contended(lock_type, rank); });
}
[[gnu::noinline]] int unlock(int rank, MPI_Win win) {
  return on_window(
      win, {"MPI_Win_unlock", rank}, [&](Window& w) { return w.unlock(rank); }, &Runtime::Win_unlock, rank, win);
}
[[gnu::noinline]] int unlock_contended(Window& window, epochs::HeldLock lock, std::uint64_t before) {
  return in_call(window, {"MPI_Win_unlock", lock.target}, [&](Window& w) { return w.unlock_contended(lock, before); });
}
// With threads a stripe takes the lock. Inline it would make the entry points larger.
[[gnu::noinline]] int lock_among_threads(Window& window, int lock_type, int rank, int assert) {
  if (window.lock_in_stripe(lock_type, rank, assert)) [[likely]]
    return MPI_SUCCESS;
  return in_call(window, {"MPI_Win_lock", rank}, [&](Window& w) { return w.lock(lock_type, rank, assert); });
}
[[gnu::noinline]] int unlock_among_threads(Window& window, int rank) {
  farside::epochs::HeldLock held;
  std::uint64_t before = 0;
  const Window::FastPath fast_path = window.unlock_in_stripe(rank, held, before);
  if (fast_path == Window::FastPath::kDone) [[likely]] {
    Window::progress_runtime();
    return MPI_SUCCESS;
  }
  if (fast_path == Window::FastPath::kContended) return unlock_contended(window, held, before);
  return in_call(window, {"MPI_Win_unlock", rank}, [&](Window& w) { return w.unlock(rank); });
}
[[gnu::noinline]] int flush(int rank, MPI_Win win) {
  return on_window(
      win, {"MPI_Win_flush", rank}, [&](Window& w) { return w.flush(rank); }, &Runtime::Win_flush, rank, win);
}
[[gnu::noinline]] int flush_local(int rank, MPI_Win win) {
  return on_window(
      win, {"MPI_Win_flush_local", rank}, [&](Window& w) { return w.flush_local(rank); }, &Runtime::Win_flush_local,
      rank, win);
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_FAST_ENTRY(Win_fence, (int assert, MPI_Win win), (assert, win), fence(assert, win)) {
  Window* window = WindowTable::instance().find_fast(win);
  if (window != nullptr && window->has_fast_notifications()) [[likely]] {
    std::uint64_t word = 0;
    const Window::FastPath fast_path = window->try_fence(assert, word);
    if (fast_path == Window::FastPath::kDone) [[likely]]
      return MPI_SUCCESS;
    if (fast_path == Window::FastPath::kContended) return continue_fence(*window, word);
  }
  return hand_on_Win_fence(assert, win);
}
FARSIDE_FAST_ENTRY(Win_post, (MPI_Group group, int assert, MPI_Win win), (group, assert, win),
                   post(group, assert, win)) {
  if (on_fast_path(win, [&](Window& w) { return w.has_fast_notifications() && w.try_post(group, assert); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_post(group, assert, win);
}
FARSIDE_FAST_ENTRY(Win_start, (MPI_Group group, int assert, MPI_Win win), (group, assert, win),
                   start(group, assert, win)) {
  if (on_fast_path(win, [&](Window& w) { return w.has_fast_notifications() && w.try_start(group, assert); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_start(group, assert, win);
}
FARSIDE_FAST_ENTRY(Win_complete, (MPI_Win win), (win), complete_slowly(win)) {
  if (on_fast_path(win, [](Window& w) { return w.has_fast_notifications() && w.try_complete(); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_complete(win);
}
FARSIDE_FAST_ENTRY(Win_wait, (MPI_Win win), (win), wait_slowly(win)) {
  if (on_fast_path(win, [](Window& w) { return w.has_fast_notifications() && w.try_wait(); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_wait(win);
}
FARSIDE_ENTRY(Win_test, (MPI_Win win, int* flag), (win, flag)) {
  return on_window(
      win, "MPI_Win_test", [&](Window& w) { return w.test(flag); }, &Runtime::Win_test, win, flag);
}
FARSIDE_FAST_ENTRY(Win_lock, (int lock_type, int rank, int assert, MPI_Win win), (lock_type, rank, assert, win),
                   lock(lock_type, rank, assert, win)) {
  Window* window = WindowTable::instance().find_fast(win);
  if (window != nullptr && window->has_fast_locks()) [[likely]] {
    if (window->threaded()) [[unlikely]]
      return lock_among_threads(*window, lock_type, rank, assert);
    const Window::FastPath fast_path = window->try_lock(lock_type, rank, assert);
    if (fast_path == Window::FastPath::kDone) [[likely]]
      return MPI_SUCCESS;
    if (fast_path == Window::FastPath::kContended) return lock_contended(*window, lock_type, rank);
  }
  return hand_on_Win_lock(lock_type, rank, assert, win);
}
FARSIDE_FAST_ENTRY(Win_unlock, (int rank, MPI_Win win), (rank, win), unlock(rank, win)) {
  Window* window = WindowTable::instance().find_fast(win);
  if (window != nullptr && window->has_fast_releases()) [[likely]] {
    if (window->threaded()) [[unlikely]]
      return unlock_among_threads(*window, rank);
    farside::epochs::HeldLock held;
    std::uint64_t before = 0;
    const Window::FastPath fast_path = window->try_unlock(rank, held, before);
    if (fast_path == Window::FastPath::kDone) [[likely]] {
      Window::progress_runtime();
      return MPI_SUCCESS;
    }
    if (fast_path == Window::FastPath::kContended) return unlock_contended(*window, held, before);
  }
  return hand_on_Win_unlock(rank, win);
}
FARSIDE_ENTRY(Win_lock_all, (int assert, MPI_Win win), (assert, win)) {
  return on_window(
      win, "MPI_Win_lock_all", [&](Window& w) { return w.lock_all(assert); }, &Runtime::Win_lock_all, assert, win);
}
FARSIDE_ENTRY(Win_unlock_all, (MPI_Win win), (win)) {
  return on_window(
      win, "MPI_Win_unlock_all", [](Window& w) { return w.unlock_all(); }, &Runtime::Win_unlock_all, win);
}
FARSIDE_FAST_ENTRY(Win_flush, (int rank, MPI_Win win), (rank, win), flush(rank, win)) {
  if (on_fast_path(win, [&](Window& w) { return w.try_flush(rank); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_flush(rank, win);
}
FARSIDE_ENTRY(Win_flush_all, (MPI_Win win), (win)) {
  return on_window(
      win, "MPI_Win_flush_all", [](Window& w) { return w.flush_all(); }, &Runtime::Win_flush_all, win);
}
FARSIDE_FAST_ENTRY(Win_flush_local, (int rank, MPI_Win win), (rank, win), flush_local(rank, win)) {
  if (on_fast_path(win, [&](Window& w) { return w.try_flush(rank); })) [[likely]]
    return MPI_SUCCESS;
  return hand_on_Win_flush_local(rank, win);
}
FARSIDE_ENTRY(Win_flush_local_all, (MPI_Win win), (win)) {
  return on_window(
      win, "MPI_Win_flush_local_all", [](Window& w) { return w.flush_local_all(); }, &Runtime::Win_flush_local_all,
      win);
}
FARSIDE_ENTRY(Win_sync, (MPI_Win win), (win)) {
  return on_window(
      win, "MPI_Win_sync", [](Window& w) { return w.sync(); }, &Runtime::Win_sync, win);
}
