// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: in start and post epochs.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

const Case kCasesOfStartAndPost[] = {
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
    {"MPI_Win_unlock, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0, "unlock of a target that is not locked",
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
    {"MPI_Put, after complete", kNowhere, MPI_ERR_RMA_SYNC, 0, "operation outside any access epoch; open one first",
     [](Scene& s) {
       s.post_and_start();
       CHECK_MPI(MPI_Win_complete(s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       CHECK_MPI(MPI_Win_wait(s.window));
     }},
    {"MPI_Put, with an empty start group", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first",
     [](Scene& s) {
       CHECK_MPI(MPI_Win_start(s.to_nobody, 0, s.window));
       MISTAKE_AT(s.next, s.put(s.next));
       CHECK_MPI(MPI_Win_complete(s.window));
     }},
    {"MPI_Win_free, in a start epoch", kStarted, MPI_ERR_RMA_SYNC, 0,
     "free while an epoch of MPI_Win_start is open; call MPI_Win_complete first", [](Scene& s) { MISTAKE(s.free()); }},
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
     "free while the own window is posted; call MPI_Win_wait first", [](Scene& s) { MISTAKE(s.free()); }},
    {"MPI_Win_wait, twice", kNowhere, MPI_ERR_RMA_SYNC, 0, "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) {
       s.post_and_start();
       s.complete_and_wait();
       MISTAKE(MPI_Win_wait(s.window));
     }},
    {"MPI_Win_test, after wait", kNowhere, MPI_ERR_RMA_SYNC, 0, "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) {
       s.post_and_start();
       s.complete_and_wait();
       MISTAKE(MPI_Win_test(s.window, &s.flag));
     }},
};

}  // namespace

Cases start_and_post() { return kCasesOfStartAndPost; }

}  // namespace misuse
