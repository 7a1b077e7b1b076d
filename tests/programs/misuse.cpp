// SPDX-License-Identifier: BSD-3-Clause
// Mistakes, one by one: each must be refused with its class and be reported in one line that says what to do, must change
// nothing, and the window must work afterwards. Two ranks; rank 0 makes each mistake, mostly both do.
//
//   misuse [create]           all of them
//   misuse [create] only N    the N-th (from 1)
//   misuse report N           what the runtime says to the N-th, as "rank R: silent|right|other: CLASS", for
//                             tests/native_misuse; afterwards the window is used as after a refusal
//   misuse names              a line for each
//   misuse fatal              one under MPI_ERRORS_ARE_FATAL: this run must fail
#include "misuse.hpp"

namespace {

using namespace misuse;  // NOLINT(google-build-using-namespace)

const Case kCases[] = {

    // ---- outside any epoch

    {"MPI_Put, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.put(s.next)); }},
    {"MPI_Get, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.get(s.next)); }},
    {"MPI_Accumulate, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.accumulate(s.next)); }},
    {"MPI_Get_accumulate, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.get_accumulate(s.next)); }},
    {"MPI_Fetch_and_op, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.fetch_and_op(s.next)); }},
    {"MPI_Compare_and_swap, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.compare_and_swap(s.next)); }},
    {"MPI_Rput, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch; lock the target first",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rput(s.next)); }},
    {"MPI_Rget, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch; lock the target first",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rget(s.next)); }},
    {"MPI_Raccumulate, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch; lock the target first",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.raccumulate(s.next)); }},
    {"MPI_Rget_accumulate, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch; lock the target first",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rget_accumulate(s.next)); }},
    {"MPI_Win_unlock, of what is not locked", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "unlock of a target that is not locked; unlock each locked target once",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window)); }},
    {"MPI_Win_unlock_all, without lock_all", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "unlock_all without a lock_all; call MPI_Win_lock_all first",
     [](Scene& s) { MISTAKE(MPI_Win_unlock_all(s.window)); }},
    {"MPI_Win_flush, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_flush(s.next, s.window)); }},
    {"MPI_Win_flush_all, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE(MPI_Win_flush_all(s.window)); }},
    {"MPI_Win_flush_local, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_flush_local(s.next, s.window)); }},
    {"MPI_Win_flush_local_all, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE(MPI_Win_flush_local_all(s.window)); }},
    {"MPI_Win_complete, without start", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "complete without a start; call MPI_Win_start first",
     [](Scene& s) { MISTAKE(MPI_Win_complete(s.window)); }},
    {"MPI_Win_wait, without post", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) { MISTAKE(MPI_Win_wait(s.window)); }},
    {"MPI_Win_test, without post", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) { MISTAKE(MPI_Win_test(s.window, &s.flag)); }},

    // ---- between and after fences

    {"MPI_Put, after a fence with MPI_MODE_NOSUCCEED", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) {
       s.fence_and_use();
       s.fence_off();
       MISTAKE_AT(s.next, s.put(s.next));
     }},
    {"MPI_Get, after a lock that followed the fence", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.lock();
       s.unlock();
       MISTAKE_AT(s.next, s.get(s.next));
     }},
    {"MPI_Put, after a start epoch that followed the fence", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(0, s.window));
       s.post_and_start();
       s.complete_and_wait();
       MISTAKE_AT(s.next, s.put(s.next));
     }},
    {"MPI_Win_fence, MPI_MODE_NOPRECEDE after operations", kInFence, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC,
     "MPI_MODE_NOPRECEDE, but operations were issued since the last fence; leave",
     [](Scene& s) { MISTAKE(MPI_Win_fence(MPI_MODE_NOPRECEDE, s.window)); }},
    {"MPI_Rput, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rput(s.next)); }},
    {"MPI_Rget, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rget(s.next)); }},
    {"MPI_Win_lock, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "lock while operations of a fence epoch are open; call MPI_Win_fence first",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window)); }},
    {"MPI_Win_lock_all, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "lock while operations of a fence epoch are open; call MPI_Win_fence first",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(0, s.window)); }},
    {"MPI_Win_start, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "start while operations of a fence epoch are open; call MPI_Win_fence first",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, 0, s.window)); }},
    {"MPI_Win_flush, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_flush(s.next, s.window)); }},
    {"MPI_Win_flush_local_all, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE(MPI_Win_flush_local_all(s.window)); }},
    {"MPI_Win_complete, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "complete without a start; call MPI_Win_start first",
     [](Scene& s) { MISTAKE(MPI_Win_complete(s.window)); }},
    {"MPI_Win_unlock, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "unlock of a target that is not locked",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window)); }},
    {"MPI_Win_unlock_all, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0, "unlock_all without a lock_all",
     [](Scene& s) { MISTAKE(MPI_Win_unlock_all(s.window)); }},
    {"MPI_Win_wait, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) { MISTAKE(MPI_Win_wait(s.window)); }},
    {"MPI_Win_free, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "free while operations of a fence epoch are open; call MPI_Win_fence first",
     [](Scene& s) {
       MPI_Win copy = s.window;
       MISTAKE(MPI_Win_free(&copy));
     }},
    {"MPI_Win_fence, MPI_MODE_NOSUCCEED by one rank only", kNowhere, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC,
     "MPI_MODE_NOSUCCEED was given to this fence by rank 1 but not by rank 0; give it on all processes or on none",
     [](Scene& s) {
       s.fence_and_use();
       MISTAKE(MPI_Win_fence(s.rank == 0 ? 0 : MPI_MODE_NOSUCCEED, s.window));
     }},
    {"MPI_Win_fence, MPI_MODE_NOPRECEDE by one rank only", kNowhere, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC,
     "MPI_MODE_NOPRECEDE was given to this fence by rank 0 but not by rank 1; give it on all processes or on none",
     [](Scene& s) { MISTAKE(MPI_Win_fence(s.rank == 0 ? MPI_MODE_NOPRECEDE : 0, s.window)); }},

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
     "fence while this process holds locks; unlock first",
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
     "unlock of a target that is not locked",
     [](Scene& s) { MISTAKE_AT(s.rank, MPI_Win_unlock(s.rank, s.window)); }},
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
     "free while this process holds locks; unlock first",
     [](Scene& s) {
       MPI_Win copy = s.window;
       MISTAKE(MPI_Win_free(&copy));
     }},

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
     "fence while this process holds locks",
     [](Scene& s) { MISTAKE(MPI_Win_fence(0, s.window)); }},
    {"MPI_Win_start, while all targets are locked", kAllLocked, MPI_ERR_RMA_SYNC, 0,
     "start while this process holds locks",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, 0, s.window)); }},
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
     "free while this process holds locks",
     [](Scene& s) {
       MPI_Win copy = s.window;
       MISTAKE(MPI_Win_free(&copy));
     }},

    // ---- in start and post epochs

    {"MPI_Win_start, twice", kStarted, MPI_ERR_RMA_SYNC, 0,
     "start while an epoch of MPI_Win_start is open; call MPI_Win_complete first",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, 0, s.window)); }},
    {"MPI_Win_fence, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "fence while an epoch of MPI_Win_start is open; call MPI_Win_complete first",
     [](Scene& s) { MISTAKE(MPI_Win_fence(0, s.window)); }},
    {"MPI_Win_lock, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "lock while an epoch of MPI_Win_start is open; call MPI_Win_complete first",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window)); }},
    {"MPI_Win_lock_all, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "lock while an epoch of MPI_Win_start is open; call MPI_Win_complete first",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(0, s.window)); }},
    {"MPI_Win_unlock, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "unlock of a target that is not locked",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window)); }},
    {"MPI_Win_unlock_all, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0, "unlock_all without a lock_all",
     [](Scene& s) { MISTAKE(MPI_Win_unlock_all(s.window)); }},
    {"MPI_Win_flush, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_flush(s.next, s.window)); }},
    {"MPI_Win_flush_all, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "flush outside a passive target epoch; flush between lock and unlock",
     [](Scene& s) { MISTAKE(MPI_Win_flush_all(s.window)); }},
    {"MPI_Put, to a target outside the start group", kStarted, MPI_ERR_RMA_SYNC, 0,
     "operation on a target that is not in the group given to MPI_Win_start; add the target to that group",
     [](Scene& s) { MISTAKE_AT(s.rank, s.put(s.rank)); }},
    {"MPI_Get, from a target outside the start group", kStarted, MPI_ERR_RMA_SYNC, 0,
     "operation on a target that is not in the group given to MPI_Win_start; add the target to that group",
     [](Scene& s) { MISTAKE_AT(s.rank, s.get(s.rank)); }},
    {"MPI_Fetch_and_op, to a target outside the start group", kStarted, MPI_ERR_RMA_SYNC, 0,
     "operation on a target that is not in the group given to MPI_Win_start; add the target to that group",
     [](Scene& s) { MISTAKE_AT(s.rank, s.fetch_and_op(s.rank)); }},
    {"MPI_Rput, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "request-based operation outside a passive target epoch",
     [](Scene& s) { MISTAKE_REQUEST(s.next, s.rput(s.next)); }},
    {"MPI_Win_complete, twice", kNowhere, MPI_ERR_RMA_SYNC, 0, "complete without a start",
     [](Scene& s) {
       s.post_and_start();
       CHECK_MPI(MPI_Win_complete(s.window));
       MISTAKE(MPI_Win_complete(s.window));
       CHECK_MPI(MPI_Win_wait(s.window));
     }},
    {"MPI_Put, after complete", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) {
       s.post_and_start();
       CHECK_MPI(MPI_Win_complete(s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       CHECK_MPI(MPI_Win_wait(s.window));
     }},
    {"MPI_Put, with an empty start group", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation on a target that is not in the group given to MPI_Win_start; add the target to that group",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_start(s.to_nobody, 0, s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       CHECK_MPI(MPI_Win_complete(s.window));
     }},
    {"MPI_Win_free, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "free while an epoch of MPI_Win_start is open; call MPI_Win_complete first",
     [](Scene& s) {
       MPI_Win copy = s.window;
       MISTAKE(MPI_Win_free(&copy));
     }},
    {"MPI_Win_post, twice", kPosted, MPI_ERR_RMA_SYNC, 0,
     "post while the window is already posted; call MPI_Win_wait first",
     [](Scene& s) { MISTAKE(MPI_Win_post(s.to_next, 0, s.window)); }},
    {"MPI_Win_fence, while posted", kPosted, MPI_ERR_RMA_SYNC, 0,
     "fence while the own window is posted; call MPI_Win_wait first",
     [](Scene& s) { MISTAKE(MPI_Win_fence(0, s.window)); }},
    {"MPI_Win_lock_all, while posted", kPosted, MPI_ERR_RMA_SYNC, MPI_ERR_RMA_CONFLICT,
     "lock_all, which locks the own window too, while that is posted; call MPI_Win_wait first",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(0, s.window)); }},
    {"MPI_Win_free, while posted", kPosted, MPI_ERR_RMA_SYNC, 0,
     "free while the own window is posted; call MPI_Win_wait first",
     [](Scene& s) {
       MPI_Win copy = s.window;
       MISTAKE(MPI_Win_free(&copy));
     }},
    {"MPI_Win_wait, twice", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) {
       s.post_and_start();
       s.complete_and_wait();
       MISTAKE(MPI_Win_wait(s.window));
     }},
    {"MPI_Win_test, after wait", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) {
       s.post_and_start();
       s.complete_and_wait();
       MISTAKE(MPI_Win_test(s.window, &s.flag));
     }},

    // ---- what needs the other side

    {"MPI_Win_lock, exclusive of a target that is posted", kPosted, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "lock of a target whose window is exposed by its MPI_Win_post; lock it after the target's MPI_Win_wait",
     [](Scene& s) {
       s.barrier();
       MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.barrier();
     }},
    {"MPI_Win_lock, shared of a target that is posted", kPosted, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "lock of a target whose window is exposed by its MPI_Win_post; lock it after the target's MPI_Win_wait",
     [](Scene& s) {
       s.barrier();
       MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.barrier();
     }},
    {"MPI_Win_lock_all, with a target that is posted", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "lock of a target whose window is exposed by its MPI_Win_post; lock it after the target's MPI_Win_wait",
     [](Scene& s) {
       if (s.rank == 1) CHECK_MPI(MPI_Win_post(s.to_next, 0, s.window));
       s.barrier();
       if (s.rank == 0) MISTAKE(MPI_Win_lock_all(0, s.window));
       s.barrier();
       if (s.rank == 0) {
         CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
         CHECK_MPI(MPI_Win_complete(s.window));
       }
       if (s.rank == 1) CHECK_MPI(MPI_Win_wait(s.window));
     }},
    {"MPI_Win_post, while another rank holds an exclusive lock here", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "post while the own window is locked by some rank; post when all locks on this window were released",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.next, 0, s.window));
       s.barrier();
       MISTAKE(MPI_Win_post(s.to_next, 0, s.window));
       s.barrier();
       s.unlock();
     }},
    {"MPI_Win_post, while another rank holds a shared lock here", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "post while the own window is locked by some rank; post when all locks on this window were released",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, s.next, 0, s.window));
       s.barrier();
       MISTAKE(MPI_Win_post(s.to_next, 0, s.window));
       s.barrier();
       s.unlock();
     }},
    {"MPI_Win_post, while this rank has locked itself", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "post while the own window is locked by some rank",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, s.rank, 0, s.window));
       MISTAKE(MPI_Win_post(s.to_next, 0, s.window));
       CHECK_MPI(MPI_Win_unlock(s.rank, s.window));
     }},
    {"MPI_Put, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.to_next, MPI_MODE_NOPUT, s.window));
       CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       s.complete_and_wait();
     }},
    {"MPI_Accumulate, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.to_next, MPI_MODE_NOPUT, s.window));
       CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
       MISTAKE_AT(s.next, s.accumulate(s.next));
       s.complete_and_wait();
     }},
    {"MPI_Fetch_and_op, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.to_next, MPI_MODE_NOPUT, s.window));
       CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
       MISTAKE_AT(s.next, s.fetch_and_op(s.next));
       s.complete_and_wait();
     }},
    {"MPI_Compare_and_swap, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_post(s.to_next, MPI_MODE_NOPUT, s.window));
       CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
       MISTAKE_AT(s.next, s.compare_and_swap(s.next));
       s.complete_and_wait();
     }},
    {"MPI_Put, into an exposure fenced with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT, s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       s.fence_off();
     }},
    {"MPI_Get_accumulate, into an exposure fenced with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT, s.window));
       MISTAKE_AT(s.next, s.get_accumulate(s.next));
       s.fence_off();
     }},

    // ---- arguments, each in an epoch in which the right call is allowed

    {"MPI_Put, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.put(s.size)); }},
    {"MPI_Get, rank negative", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(-77, s.get(-77)); }},
    {"MPI_Fetch_and_op, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.fetch_and_op(s.size)); }},
    {"MPI_Rget, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.rget(s.size)); }},
    {"MPI_Win_flush, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_flush(s.size, s.window)); }},
    {"MPI_Win_lock, rank too large", kNowhere, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_lock(MPI_LOCK_SHARED, s.size, 0, s.window)); }},
    {"MPI_Win_unlock, rank too large", kLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_unlock(s.size, s.window)); }},
    {"MPI_Put, origin count negative", kAllLocked, MPI_ERR_COUNT, 0,
     "the origin count is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, -1, MPI_INT, s.next, 0, 1, MPI_INT, s.window));
     }},
    {"MPI_Get, target count negative", kAllLocked, MPI_ERR_COUNT, 0,
     "the target count is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get(s.result, 1, MPI_INT, s.next, 0, -1, MPI_INT, s.window));
     }},
    {"MPI_Get_accumulate, result count negative", kAllLocked, MPI_ERR_COUNT, 0,
     "the result count is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get_accumulate(s.values, 1, MPI_INT, s.result, -1, MPI_INT, s.next, 0, 1,
                                             MPI_INT, MPI_SUM, s.window));
     }},
    {"MPI_Put, displacement negative", kAllLocked, MPI_ERR_DISP, MPI_ERR_RMA_RANGE,
     "the target displacement is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, -1, 1, MPI_INT, s.window));
     }},
    {"MPI_Put, displacement negative, of nothing", kAllLocked, MPI_ERR_DISP, MPI_ERR_RMA_RANGE,
     "the target displacement is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 0, MPI_INT, s.next, -1, 0, MPI_INT, s.window));
     }},
    {"MPI_Put, origin datatype null", kAllLocked, MPI_ERR_TYPE, 0, "the datatype is MPI_DATATYPE_NULL",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_DATATYPE_NULL, s.next, 0, 1, MPI_INT, s.window));
     }},
    {"MPI_Get, target datatype null", kAllLocked, MPI_ERR_TYPE, 0, "the datatype is MPI_DATATYPE_NULL",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get(s.result, 1, MPI_INT, s.next, 0, 1, MPI_DATATYPE_NULL, s.window));
     }},
    {"MPI_Put, datatype not committed", kAllLocked, MPI_ERR_TYPE, 0,
     "the datatype is not committed (MPI_Type_commit)",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, type, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, datatype not committed", kAllLocked, MPI_ERR_TYPE, 0,
     "the datatype is not committed (MPI_Type_commit)",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, type, s.next, 0, 1, type, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, operation null", kAllLocked, MPI_ERR_OP, 0, "the operation is not a predefined one",
     [](Scene& s) {
       MISTAKE_AT(s.next,
                  MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_OP_NULL, s.window));
     }},
    {"MPI_Accumulate, operation of the user", kAllLocked, MPI_ERR_OP, 0,
     "the operation is not a predefined one",
     [](Scene& s) {
       MPI_Op own;
       CHECK_MPI(MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, own, s.window));
       CHECK_MPI(MPI_Op_free(&own));
     }},
    {"MPI_Fetch_and_op, operation of the user", kAllLocked, MPI_ERR_OP, 0,
     "the operation is not a predefined one",
     [](Scene& s) {
       MPI_Op own;
       CHECK_MPI(MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own));
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, MPI_INT, s.next, 0, own, s.window));
       CHECK_MPI(MPI_Op_free(&own));
     }},
    {"MPI_Accumulate, MPI_NO_OP", kAllLocked, MPI_ERR_OP, 0,
     "MPI_NO_OP is only for the calls that fetch; use MPI_Get_accumulate",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_NO_OP, s.window));
     }},
    {"MPI_Accumulate, bits of a double", kAllLocked, MPI_ERR_OP, MPI_ERR_TYPE,
     "band is not defined for double",
     [](Scene& s) {
       MISTAKE_AT(s.next,
                  MPI_Accumulate(s.values, 1, MPI_DOUBLE, s.next, 0, 1, MPI_DOUBLE, MPI_BAND, s.window));
     }},
    {"MPI_Accumulate, location of an int", kAllLocked, MPI_ERR_OP, MPI_ERR_TYPE, "minloc is not defined for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_MINLOC, s.window));
     }},
    {"MPI_Accumulate, datatype of mixed basic types", kAllLocked, MPI_ERR_TYPE, 0,
     "the target datatype mixes basic types; an accumulate needs one",
     [](Scene& s) {
       const int lengths[2] = {1, 1};
       const MPI_Aint places[2] = {0, 8};
       const MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE};
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_create_struct(2, lengths, places, types, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, type, s.next, 0, 1, type, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, other basic type at the target", kAllLocked, MPI_ERR_TYPE, 0,
     "the origin datatype is not made of",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_FLOAT, MPI_SUM, s.window));
     }},
    {"MPI_Get_accumulate, other basic type of the result", kAllLocked, MPI_ERR_TYPE, 0,
     "the result datatype is not made of",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get_accumulate(s.values, 1, MPI_INT, s.result, 1, MPI_FLOAT, s.next, 0, 1,
                                             MPI_INT, MPI_SUM, s.window));
     }},
    {"MPI_Fetch_and_op, derived datatype", kAllLocked, MPI_ERR_TYPE, 0,
     "the datatype must be a predefined one",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, type, s.next, 0, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Compare_and_swap, of a double", kAllLocked, MPI_ERR_TYPE, 0,
     "the datatype must be a predefined integer",
     [](Scene& s) {
       MISTAKE_AT(s.next,
                  MPI_Compare_and_swap(s.values, s.values + 2, s.result, MPI_DOUBLE, s.next, 0, s.window));
     }},
    {"MPI_Put, null buffer", kAllLocked, MPI_ERR_BUFFER, 0,
     "the origin buffer is null, for 4 bytes; give it memory",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(nullptr, 1, MPI_INT, s.next, 0, 1, MPI_INT, s.window));
     }},
    {"MPI_Get, null buffer", kAllLocked, MPI_ERR_BUFFER, 0,
     "the origin buffer is null, for 4 bytes; give it memory",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get(nullptr, 1, MPI_INT, s.next, 0, 1, MPI_INT, s.window));
     }},
    {"MPI_Fetch_and_op, null result", kAllLocked, MPI_ERR_BUFFER, 0,
     "the result buffer is null, for 4 bytes; give it memory",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, nullptr, MPI_INT, s.next, 0, MPI_SUM, s.window));
     }},
    {"MPI_Compare_and_swap, null compare buffer", kAllLocked, MPI_ERR_BUFFER, 0,
     "the compare buffer is null, for 4 bytes; give it memory",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Compare_and_swap(s.values, nullptr, s.result, MPI_INT, s.next, 0, s.window));
     }},
    {"MPI_Win_lock, lock type", kNowhere, MPI_ERR_LOCKTYPE, 0,
     "12345 is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(12345, s.next, 0, s.window)); }},
    {"MPI_Win_lock, an assertion of fence", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, MPI_MODE_NOPRECEDE, s.window));
     }},
    {"MPI_Win_lock_all, an assertion of post", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(MPI_MODE_NOPUT, s.window)); }},
    {"MPI_Win_fence, an assertion of lock", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED (",
     [](Scene& s) { MISTAKE(MPI_Win_fence(MPI_MODE_NOCHECK, s.window)); }},
    {"MPI_Win_fence, no assertion at all", kNowhere, MPI_ERR_ASSERT, 0, "is not one of this call; allowed: ",
     [](Scene& s) { MISTAKE(MPI_Win_fence(1 << 30, s.window)); }},
    {"MPI_Win_post, an assertion of fence", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK, NOSTORE, NOPUT (",
     [](Scene& s) { MISTAKE(MPI_Win_post(s.to_next, MPI_MODE_NOSUCCEED, s.window)); }},
    {"MPI_Win_start, an assertion of post", kPosted, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, MPI_MODE_NOPUT, s.window)); }},
    {"MPI_Win_post, group null", kNowhere, MPI_ERR_GROUP, 0,
     "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY",
     [](Scene& s) { MISTAKE(MPI_Win_post(MPI_GROUP_NULL, 0, s.window)); }},
    {"MPI_Win_start, group null", kNowhere, MPI_ERR_GROUP, 0,
     "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY",
     [](Scene& s) { MISTAKE(MPI_Win_start(MPI_GROUP_NULL, 0, s.window)); }},
    {"MPI_Win_post, to a process without the window", kNowhere, MPI_ERR_GROUP, MPI_ERR_RANK,
     "member 0 of the group is not in the window's group; make it from that group",
     [](Scene& s) {
       MPI_Win lonely;
       void* base = nullptr;
       CHECK_MPI(MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, &base, &lonely));
       CHECK_MPI(MPI_Win_set_errhandler(lonely, MPI_ERRORS_RETURN));
       CHECK_MPI(MPI_Win_set_name(lonely, "misused"));
       MISTAKE(MPI_Win_post(s.to_next, 0, lonely));
       CHECK_MPI(MPI_Win_free(&lonely));
     }},
    {"MPI_Win_start, to a process without the window", kNowhere, MPI_ERR_GROUP, MPI_ERR_RANK,
     "member 0 of the group is not in the window's group; make it from that group",
     [](Scene& s) {
       MPI_Win lonely;
       void* base = nullptr;
       CHECK_MPI(MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, &base, &lonely));
       CHECK_MPI(MPI_Win_set_errhandler(lonely, MPI_ERRORS_RETURN));
       CHECK_MPI(MPI_Win_set_name(lonely, "misused"));
       MISTAKE(MPI_Win_start(s.to_next, 0, lonely));
       CHECK_MPI(MPI_Win_free(&lonely));
     }},

    // ---- beyond the window

    {"MPI_Put, one element past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window));
     }},
    {"MPI_Put, one byte past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 5, MPI_BYTE, s.next, s.kInts - 1, 5, MPI_BYTE, s.window));
     }},
    {"MPI_Put, more than the window holds", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next,
                  MPI_Put(s.values, s.kInts + 1, MPI_INT, s.next, 0, s.kInts + 1, MPI_INT, s.window));
     }},
    {"MPI_Put, a displacement that overflows", kAllLocked, MPI_ERR_RMA_RANGE, MPI_ERR_DISP,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, MPI_Aint{1} << 62, 1, MPI_INT, s.window));
     }},
    {"MPI_Get, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get(s.result, s.kInts, MPI_INT, s.next, 1, s.kInts, MPI_INT, s.window));
     }},
    {"MPI_Accumulate, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next,
                  MPI_Accumulate(s.values, 2, MPI_INT, s.next, s.kInts - 1, 2, MPI_INT, MPI_SUM, s.window));
     }},
    {"MPI_Fetch_and_op, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, MPI_INT, s.next, s.kInts, MPI_SUM, s.window));
     }},
    {"MPI_Compare_and_swap, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Compare_and_swap(s.values, s.values + 1, s.result, MPI_INT, s.next, s.kInts,
                                               s.window));
     }},
    {"MPI_Rput, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_REQUEST(s.next,
                       MPI_Rput(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window, &s.request));
     }},
    {"MPI_Put, the last block of a strided type past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_vector(2, 1, s.kInts, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Put(s.values, 2, MPI_INT, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Get, a block of a derived type before the beginning", kAllLocked, MPI_ERR_RMA_RANGE, 0,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       const int places[2] = {0, -1};
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Get(s.result, 2, MPI_INT, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Put, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 4, MPI_INT, s.next, 0, 2, MPI_INT, s.window));
     }},
    {"MPI_Get, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get(s.result, 2, MPI_INT, s.next, 0, 4, MPI_INT, s.window));
     }},
    {"MPI_Accumulate, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 4, MPI_INT, s.next, 0, 2, MPI_INT, MPI_SUM, s.window));
     }},

    // ---- the wrong window, and windows that cannot be

    {"MPI_Win_shared_query, of a window that is not shared", kNowhere, MPI_ERR_RMA_FLAVOR, 0,
     "the window was not made by MPI_Win_allocate_shared",
     [](Scene& s) {
       MPI_Aint bytes = 0;
       int unit = 0;
       void* base = nullptr;
       MISTAKE_AT(0, MPI_Win_shared_query(s.window, 0, &bytes, &unit, &base));
     }},
    {"MPI_Win_attach, to a window that is not dynamic", kNowhere, MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH,
     "the window was not made by MPI_Win_create_dynamic",
     [](Scene& s) { MISTAKE(MPI_Win_attach(s.window, s.values, sizeof s.values)); }},
    {"MPI_Win_detach, from a window that is not dynamic", kNowhere, MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH,
     "the window was not made by MPI_Win_create_dynamic",
     [](Scene& s) { MISTAKE(MPI_Win_detach(s.window, s.values)); }},
    {"MPI_Put, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) {
       MISTAKE_WITHOUT_WINDOW(MPI_Put(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_WIN_NULL));
     }},
    {"MPI_Win_fence, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) { MISTAKE_WITHOUT_WINDOW(MPI_Win_fence(0, MPI_WIN_NULL)); }},
    {"MPI_Win_free, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) {
       MPI_Win none = MPI_WIN_NULL;
       MISTAKE_WITHOUT_WINDOW(MPI_Win_free(&none));
     }},
    {"MPI_Put, on a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       MPI_Win freed;
       void* base = nullptr;
       CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &freed));
       const MPI_Win copy = freed;
       CHECK_MPI(MPI_Win_free(&freed));
       MISTAKE_WITHOUT_WINDOW(MPI_Put(s.values, 1, MPI_INT, 0, 0, 1, MPI_INT, copy));
     }},
    {"MPI_Win_lock, on a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       MPI_Win freed;
       void* base = nullptr;
       CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &freed));
       const MPI_Win copy = freed;
       CHECK_MPI(MPI_Win_free(&freed));
       MISTAKE_WITHOUT_WINDOW(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, copy));
     }},
    {"MPI_Win_free, of a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       MPI_Win freed;
       void* base = nullptr;
       CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &freed));
       const MPI_Win copy = freed;
       CHECK_MPI(MPI_Win_free(&freed));
       MPI_Win again = copy;
       MISTAKE_WITHOUT_WINDOW(MPI_Win_free(&again));
     }},
    {"MPI_Win_create, size negative", kNowhere, MPI_ERR_SIZE, 0, "size is -1; it may not be negative",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, size negative", kNowhere, MPI_ERR_SIZE, 0, "size is -1; it may not be negative",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, displacement unit zero", kNowhere, MPI_ERR_DISP, 0,
     "displacement unit is 0; it must be positive",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, 16, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, displacement unit negative", kNowhere, MPI_ERR_DISP, 0,
     "displacement unit is -4; it must be positive",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, -4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, null memory", kNowhere, MPI_ERR_BASE, 0,
     "the base address is null, and the size 16 bytes",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(nullptr, 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, communicator null", kNowhere, MPI_ERR_COMM, 0, "the communicator is MPI_COMM_NULL",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, 16, 1, MPI_INFO_NULL, MPI_COMM_NULL, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, on an intercommunicator", kNowhere, MPI_ERR_COMM, 0,
     "a window needs an intracommunicator",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       MPI_Comm inter;
       CHECK_MPI(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, s.next, 5, &inter));
       CHECK_MPI(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, 1, MPI_INFO_NULL, inter, &base, &made)))
         MPI_Win_free(&made);
       CHECK_MPI(MPI_Comm_free(&inter));
     }},
    {"MPI_Win_allocate, same_disp_unit promised and not kept", kNowhere, MPI_ERR_INFO, MPI_ERR_DISP,
     "same_disp_unit was promised, but rank 1 has 2 where rank 0 has 1",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       MPI_Info info;
       CHECK_MPI(MPI_Info_create(&info));
       CHECK_MPI(MPI_Info_set(info, "same_disp_unit", "true"));
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, s.rank + 1, info, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
       CHECK_MPI(MPI_Info_free(&info));
     }},
    {"MPI_Win_create, same_size promised and not kept", kNowhere, MPI_ERR_INFO, MPI_ERR_SIZE,
     "same_size was promised, but rank 1 has 32 where rank 0 has 16",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       MPI_Info info;
       CHECK_MPI(MPI_Info_create(&info));
       CHECK_MPI(MPI_Info_set(info, "same_size", "true"));
       if (!MISTAKE_WITHOUT_WINDOW(
               MPI_Win_create(s.values, 16 * (s.rank + 1), 1, info, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
       CHECK_MPI(MPI_Info_free(&info));
     }},
};

// A function of the user is told each mistake once, and may itself ask the window.
int told = 0;
int told_class = 0;
void tell(MPI_Win* window, int* code, ...) {
  char name[MPI_MAX_OBJECT_NAME] = {};
  int length = 0;
  MPI_Win_get_name(*window, name, &length);
  CHECK_EQ(std::string(name), std::string("misused"));
  ++told;
  told_class = check::class_of(*code);
}

void user_function(Scene& s) {
  check::section("a function of the user");
  MPI_Errhandler handler;
  CHECK_MPI(MPI_Win_create_errhandler(tell, &handler));
  CHECK_MPI(MPI_Win_set_errhandler(s.window, handler));
  CHECK_REFUSED(MPI_Win_unlock(s.next, s.window), MPI_ERR_RMA_SYNC);
  CHECK_EQ(told, 1);
  CHECK_EQ(told_class, MPI_ERR_RMA_SYNC);
  s.lock_all();
  CHECK_REFUSED(MPI_Put(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window), MPI_ERR_RMA_RANGE);
  s.unlock_all();
  CHECK_EQ(told, 2);
  CHECK_EQ(told_class, MPI_ERR_RMA_RANGE);
  CHECK_MPI(MPI_Win_set_errhandler(s.window, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Errhandler_free(&handler));
  s.works();
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  if (program.has("names")) {
    if (check::rank() == 0) {
      for (const Case& each : kCases) std::printf("%s\n", each.name);
    }
    return 0;
  }
  CHECK_EQ(check::size(), 2);
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  const bool report = program.has("report");
  Scene scene(program.memory(), report);
  if (report || program.has("only")) {
    const std::size_t number = static_cast<std::size_t>(program.number(report ? "report" : "only", 0));
    CHECK(number >= 1 && number <= std::size(kCases));
    scene.run(kCases[number - 1]);
    if (report) std::printf("rank %d: works\n", check::rank());
    return 0;
  }
  if (program.has("fatal")) {
    check::section("MPI_ERRORS_ARE_FATAL");
    CHECK_MPI(MPI_Win_set_errhandler(scene.window, MPI_ERRORS_ARE_FATAL));
    MPI_Win_complete(scene.window);
    return 0;  // never
  }
  for (const Case& each : kCases) scene.run(each);
  user_function(scene);
  if (check::rank() == 0) std::printf("%zu mistakes refused\n", std::size(kCases));
  check::section("MPI_Win_free");
  return 0;
}
