// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: between and after fences.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

const Case kCasesOfFences[] = {
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
     "complete without a start; call MPI_Win_start first", [](Scene& s) { MISTAKE(MPI_Win_complete(s.window)); }},
    {"MPI_Win_unlock, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0, "unlock of a target that is not locked",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_unlock(s.next, s.window)); }},
    {"MPI_Win_unlock_all, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0, "unlock_all without a lock_all",
     [](Scene& s) { MISTAKE(MPI_Win_unlock_all(s.window)); }},
    {"MPI_Win_wait, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first", [](Scene& s) { MISTAKE(MPI_Win_wait(s.window)); }},
    {"MPI_Win_free, in a fence epoch", kInFence, MPI_ERR_RMA_SYNC, 0,
     "free while operations of a fence epoch are open; call MPI_Win_fence first", [](Scene& s) { MISTAKE(s.free()); }},
    {"MPI_Win_fence, MPI_MODE_NOSUCCEED by one rank only", kNowhere, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC,
     "MPI_MODE_NOSUCCEED was given to this fence by rank 1 but not by rank 0; give it on all processes or on none",
     [](Scene& s) {
       s.fence_and_use();
       MISTAKE(MPI_Win_fence(s.rank == 0 ? 0 : MPI_MODE_NOSUCCEED, s.window));
     }},
    {"MPI_Win_fence, MPI_MODE_NOPRECEDE by one rank only", kNowhere, MPI_ERR_ASSERT, MPI_ERR_RMA_SYNC,
     "MPI_MODE_NOPRECEDE was given to this fence by rank 0 but not by rank 1; give it on all processes or on none",
     [](Scene& s) { MISTAKE(MPI_Win_fence(s.rank == 0 ? MPI_MODE_NOPRECEDE : 0, s.window)); }},
};

}  // namespace

Cases fences() { return kCasesOfFences; }

}  // namespace misuse
