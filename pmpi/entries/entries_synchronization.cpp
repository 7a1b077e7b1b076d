// SPDX-License-Identifier: BSD-3-Clause
// Entry points: synchronization calls (MPI 4.0 section 12.5), and notification counters (mpi-issues 59).
#include "pmpi/entries/entry.hpp"

namespace farside::pmpi {
namespace {

// Tries the fast path of a call that notifies other ranks of the node.
template <class Attempt>
bool on_node(MPI_Win win, Attempt&& attempt) {
  return on_fast_path(win, [&](Window& w) { return w.state().notifies_fast() && attempt(w.state()); });
}
[[gnu::noinline]] int continue_fence(Window& window, std::uint64_t word) {
  return in_call(window, "MPI_Win_fence", [&](Window& w) { return w.active().run_barrier(word); });
}
[[gnu::noinline]] int unlock_contended(Window& window, epochs::HeldLock lock, std::uint64_t before) {
  WindowState::progress_runtime();
  return in_call(window, {"MPI_Win_unlock", lock.target},
                 [&](Window& w) { return w.passive().hand_off(lock, before); });
}
// With threads a stripe takes the lock. Inline it would make the entry points larger.
[[gnu::noinline]] int lock_among_threads(Window& window, int lock_type, int rank, int assert) {
  if (window.passive().lock_in_stripe(lock_type, rank, assert)) [[likely]]
    return MPI_SUCCESS;
  return in_call(window, {"MPI_Win_lock", rank}, [&](Window& w) { return w.lock(lock_type, rank, assert); });
}
[[gnu::noinline]] int unlock_among_threads(Window& window, int rank) {
  farside::epochs::HeldLock held;
  std::uint64_t before = 0;
  const FastPath fast_path = window.passive().unlock_in_stripe(rank, held, before);
  if (fast_path == FastPath::kDone) [[likely]] {
    WindowState::progress_runtime();
    return MPI_SUCCESS;
  }
  if (fast_path == FastPath::kContended) return unlock_contended(window, held, before);
  return in_call(window, {"MPI_Win_unlock", rank}, [&](Window& w) { return w.unlock(rank); });
}

}  // namespace
}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_FAST_ENTRY(Win_fence, (int assert, MPI_Win win), (assert, win),
                   on_calls("MPI_Win_fence", &Window::fence, &Runtime::Win_fence, win, assert)) {
  Window* window = library().windows.find_fast(win);
  if (window != nullptr && window->state().notifies_fast()) [[likely]] {
    std::uint64_t word = 0;
    const FastPath fast_path = ActiveTarget::try_fence(window->state(), assert, word);
    if (fast_path == FastPath::kDone) [[likely]]
      return MPI_SUCCESS;
    if (fast_path == FastPath::kContended) return continue_fence(*window, word);
  }
  return hand_on_Win_fence(assert, win);
}
FARSIDE_TRIED_ENTRY(Win_post, (MPI_Group group, int assert, MPI_Win win), (group, assert, win),
                    on_node(win, [&](WindowState& w) { return ActiveTarget::try_post(w, group, assert); }),
                    on_calls("MPI_Win_post", &Window::post, &Runtime::Win_post, win, group, assert))
FARSIDE_TRIED_ENTRY(Win_start, (MPI_Group group, int assert, MPI_Win win), (group, assert, win),
                    on_node(win, [&](WindowState& w) { return ActiveTarget::try_start(w, group, assert); }),
                    on_calls("MPI_Win_start", &Window::start, &Runtime::Win_start, win, group, assert))
FARSIDE_TRIED_ENTRY(Win_complete, (MPI_Win win), (win),
                    on_node(win, [](WindowState& w) { return ActiveTarget::try_complete(w); }),
                    on_calls("MPI_Win_complete", &Window::complete, &Runtime::Win_complete, win))
FARSIDE_TRIED_ENTRY(Win_wait, (MPI_Win win), (win),
                    on_node(win, [](WindowState& w) { return ActiveTarget::try_wait(w); }),
                    on_calls("MPI_Win_wait", &Window::wait, &Runtime::Win_wait, win))
FARSIDE_ENTRY(Win_test, (MPI_Win win, int* flag), (win, flag)) {
  return on_window(
      win, "MPI_Win_test", [&](Window& w) { return w.test(flag); }, &Runtime::Win_test, win, flag);
}
FARSIDE_FAST_ENTRY(Win_lock, (int lock_type, int rank, int assert, MPI_Win win), (lock_type, rank, assert, win),
                   on_calls({"MPI_Win_lock", rank}, &Window::lock, &Runtime::Win_lock, win, lock_type, rank, assert)) {
  Window* window = library().windows.find_fast(win);
  if (window != nullptr && window->state().fast != Fast::kNone) [[likely]] {
    if (window->threaded()) [[unlikely]]
      return lock_among_threads(*window, lock_type, rank, assert);
    if (window->passive().try_lock(lock_type, rank, assert) == FastPath::kDone) [[likely]]
      return MPI_SUCCESS;
  }
  return hand_on_Win_lock(lock_type, rank, assert, win);
}
FARSIDE_FAST_ENTRY(Win_unlock, (int rank, MPI_Win win), (rank, win),
                   on_calls({"MPI_Win_unlock", rank}, &Window::unlock, &Runtime::Win_unlock, win, rank)) {
  Window* window = library().windows.find_fast(win);
  if (window != nullptr && window->state().fast == Fast::kReleases) [[likely]] {
    if (window->threaded()) [[unlikely]]
      return unlock_among_threads(*window, rank);
    farside::epochs::HeldLock held;
    std::uint64_t before = 0;
    const FastPath fast_path = window->passive().try_unlock(rank, held, before);
    if (fast_path == FastPath::kDone) [[likely]] {
      WindowState::progress_runtime();
      return MPI_SUCCESS;
    }
    if (fast_path == FastPath::kContended) return unlock_contended(*window, held, before);
  }
  return hand_on_Win_unlock(rank, win);
}
FARSIDE_ENTRY(Win_lock_all, (int assert, MPI_Win win), (assert, win)) {
  return on_calls("MPI_Win_lock_all", &Window::lock_all, &Runtime::Win_lock_all, win, assert);
}
FARSIDE_ENTRY(Win_unlock_all, (MPI_Win win), (win)) {
  return on_calls("MPI_Win_unlock_all", &Window::unlock_all, &Runtime::Win_unlock_all, win);
}
FARSIDE_TRIED_ENTRY(Win_flush, (int rank, MPI_Win win), (rank, win),
                    on_fast_path(win, [&](Window& w) { return w.passive().try_flush(rank); }),
                    on_calls({"MPI_Win_flush", rank}, &Window::flush, &Runtime::Win_flush, win, rank))
FARSIDE_ENTRY(Win_flush_all, (MPI_Win win), (win)) {
  return on_calls("MPI_Win_flush_all", &Window::flush_all, &Runtime::Win_flush_all, win);
}
FARSIDE_TRIED_ENTRY(Win_flush_local, (int rank, MPI_Win win), (rank, win),
                    on_fast_path(win, [&](Window& w) { return w.passive().try_flush(rank); }),
                    on_calls({"MPI_Win_flush_local", rank}, &Window::flush_local, &Runtime::Win_flush_local, win, rank))
FARSIDE_ENTRY(Win_flush_local_all, (MPI_Win win), (win)) {
  return on_calls("MPI_Win_flush_local_all", &Window::flush_local_all, &Runtime::Win_flush_local_all, win);
}
FARSIDE_ENTRY(Win_sync, (MPI_Win win), (win)) {
  return on_calls("MPI_Win_sync", &Window::sync, &Runtime::Win_sync, win);
}

#define FARSIDE_NOTIFY_ENTRY(name, parameters, ...)                                                         \
  FARSIDE_OWN_ENTRY(name, parameters) {                                                                     \
    return on_farside_window(win, "MPIX_" #name, [&](Window& w) { return w.notifications().__VA_ARGS__; }); \
  }
FARSIDE_NOTIFY_ENTRY(Win_set_num_notify, (MPI_Win win, MPI_Info /*info*/, int count), set_count(count))
FARSIDE_NOTIFY_ENTRY(Win_get_num_notify, (MPI_Win win, int rank, int* count), count(rank, count))
FARSIDE_NOTIFY_ENTRY(Win_get_notify_value, (MPI_Win win, int counter, MPI_Count* value), value(counter, value))
FARSIDE_NOTIFY_ENTRY(Win_reset_notify_value, (MPI_Win win, int counter, MPI_Count* value), reset(counter, value))
FARSIDE_NOTIFY_ENTRY(Win_test_notify, (MPI_Win win, int counter, MPI_Count threshold, int* flag),
                     test(counter, threshold, flag))
FARSIDE_OWN_ENTRY(Win_wait_notify, (MPI_Win win, int counter, MPI_Count threshold)) {
  if (on_fast_path(win, [&](Window& w) { return w.notifications().try_wait(counter, threshold); })) [[likely]]
    return MPI_SUCCESS;
  return on_farside_window(win, "MPIX_Win_wait_notify", [&](Window& w) { return w.wait_notified(counter, threshold); });
}
