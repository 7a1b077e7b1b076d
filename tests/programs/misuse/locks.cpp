// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: while one target is locked, and while all are.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

const Case kCasesOfLocks[] = {
    // ---- while a target is locked

    {"MPI_Win_lock, shared of a target already locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "lock of a target that this process has already locked; unlock the target first",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window)); }},
    {"MPI_Win_lock, exclusive of a target already locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "lock of a target that this process has already locked; unlock the target first",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window)); }},
    {"MPI_Win_lock_all, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "lock_all while single targets are locked; unlock them first",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(0, s.window)); }},
    {"MPI_Win_unlock_all, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "unlock_all of locks taken by MPI_Win_lock; call MPI_Win_unlock for each target",
     [](Scene& s) { MISTAKE(MPI_Win_unlock_all(s.window)); }},
    {"MPI_Win_fence, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "fence while this process holds locks; unlock first (MPI 4.0 section 12.5 (3.1: 11.5)); with FARSIDE_CHECK=warn "
     "the "
     "call is executed anyway; here ",
     [](Scene& s) { MISTAKE(MPI_Win_fence(0, s.window)); }},
    {"MPI_Win_start, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "start while this process holds locks; unlock first",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, 0, s.window)); }},
    {"MPI_Win_complete, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0, "complete without a start",
     [](Scene& s) { MISTAKE(MPI_Win_complete(s.window)); }},
    {"MPI_Put, to a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_AT(s.rank, s.put(s.rank)); }},
    {"MPI_Get, from a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_AT(s.rank, s.get(s.rank)); }},
    {"MPI_Accumulate, to a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_AT(s.rank, s.accumulate(s.rank)); }},
    {"MPI_Rput, to a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_REQUEST(s.rank, s.rput(s.rank)); }},
    {"MPI_Win_flush, of a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_AT(s.rank, MPI_Win_flush(s.rank, s.window)); }},
    {"MPI_Win_flush_local, of a target that is not locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "the target is not locked; lock this target first with MPI_Win_lock",
     [](Scene& s) { MISTAKE_AT(s.rank, MPI_Win_flush_local(s.rank, s.window)); }},
    {"MPI_Win_unlock, of another target than the locked one", kLocked, MPI_ERR_RMA_SYNC, 0,
     "unlock of a target that is not locked", [](Scene& s) { MISTAKE_AT(s.rank, MPI_Win_unlock(s.rank, s.window)); }},
    {"MPI_Win_unlock, twice", kNowhere, MPI_ERR_RMA_SYNC, 0, "unlock of a target that is not locked",
     [](Scene& s) {
       s.lock();
       s.unlock();
       MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window));
     }},
    {"MPI_Win_flush, after unlock", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) {
       s.lock();
       s.unlock();
       MISTAKE_AT(s.next, MPI_Win_flush(s.next, s.window));
     }},
    {"MPI_Win_free, while a target is locked", kLocked, MPI_ERR_RMA_SYNC, 0,
     "free while this process holds locks; unlock first", [](Scene& s) { MISTAKE(s.free()); }},

    // ---- while all targets are locked

    {"MPI_Win_lock, while all targets are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "lock while all targets are locked; call MPI_Win_unlock_all first",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window)); }},
    {"MPI_Win_lock_all, twice", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "lock_all while all targets are already locked; call MPI_Win_unlock_all first",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(0, s.window)); }},
    {"MPI_Win_unlock, of one target while all are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "unlock of one target while all are locked by MPI_Win_lock_all; call MPI_Win_unlock_all instead",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window)); }},
    {"MPI_Win_fence, while all targets are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "fence while this process holds locks", [](Scene& s) { MISTAKE(MPI_Win_fence(0, s.window)); }},
    {"MPI_Win_start, while all targets are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "start while this process holds locks", [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, 0, s.window)); }},
    {"MPI_Win_post, while this rank has locked all", kAllLocked, MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT,
     "post while the own window is locked by this process's MPI_Win_lock_all; call MPI_Win_unlock_all first",
     [](Scene& s) { MISTAKE(MPI_Win_post(s.to_next, 0, s.window)); }},
    {"MPI_Win_unlock_all, twice", kNowhere, MPI_ERR_RMA_SYNC, 0, "unlock_all without a lock_all",
     [](Scene& s) {
       s.lock_all();
       s.unlock_all();
       MISTAKE(MPI_Win_unlock_all(s.window));
     }},
    {"MPI_Win_free, while all targets are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "free while this process holds locks", [](Scene& s) { MISTAKE(s.free()); }},
};

}  // namespace

Cases locks() { return kCasesOfLocks; }

}  // namespace misuse
