// SPDX-License-Identifier: BSD-3-Clause
// Passive target: exclusive locks exclude and shared locks share (passive/locks.hpp), lock_all beside both kinds
// (passive/lock_all.hpp). Flushes complete at the target, local flushes free the buffer, and other ranks see an
// exclusive epoch as a whole (passive/completion.hpp).
#include "passive/completion.hpp"
#include "passive/lock_all.hpp"
#include "passive/locks.hpp"

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  passive::rank = check::rank();
  passive::size = check::size();
  const check::Section<check::Memory> sections[] = {
      {"put and get under either lock", passive::put_and_get, "12.5.3"},
      {"the lock of one's own window", passive::own_window, "12.5.3"},
      {"mutual exclusion", passive::mutual_exclusion, "12.5.3"},
      {"epochs as a whole", passive::epochs_as_a_whole, "12.5.3"},
      {"two locks in one order", passive::two_locks_in_one_order, "12.5.3"},
      {"a notification beside a lock", passive::notification_beside_a_lock},
      {"readers and writers", passive::readers_and_writers, "12.5.3"},
      {"shared locks share", passive::shared_locks_share, "12.5.3"},
      {"lock_all against exclusive locks", passive::lock_all_and_exclusive, "12.5.3"},
      {"lock_all against an exclusive lock: loads and stores of the owner", passive::lock_all_and_own_stores, "12.7"},
      {"lock_all in different orders among writers", passive::lock_all_in_different_orders, "12.5.3"},
      {"lock_all beside exposures of others", passive::lock_all_beside_exposures},
      {"locks of all kinds among each other", passive::locks_of_all_kinds, "12.5.3"},
      {"exclusive locks on all targets at once", passive::locks_on_all_targets, "12.5.3"},
      {"locks of both kinds side by side", passive::mixed_locks, "12.5.3"},
      {"flushes", passive::flushes, "12.5.4"},
      {"a token passed on by memory", passive::passed_on_by_memory, "12.7"},
      {"MPI_MODE_NOCHECK", passive::without_check, "12.5.5"},
      {"many empty epochs", passive::empty_epochs, "12.5.3"},
      {"two windows", passive::two_windows, "12.5.3"},
  };
  check::run(sections, program.memory());
  return 0;
}
