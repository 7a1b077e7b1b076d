// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: calls that need an epoch, while none is open.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

const Case kCasesOfOutsideEpochs[] = {
    {"MPI_Put, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0, "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.put(s.next)); }},
    {"MPI_Get, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0, "operation outside any access epoch; open one first",
     [](Scene& s) { MISTAKE_AT(s.next, s.get(s.next)); }},
    {"MPI_Accumulate, outside any epoch", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "operation outside any access epoch; open one first", [](Scene& s) { MISTAKE_AT(s.next, s.accumulate(s.next)); }},
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
     "complete without a start; call MPI_Win_start first", [](Scene& s) { MISTAKE(MPI_Win_complete(s.window)); }},
    {"MPI_Win_wait, without post", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first", [](Scene& s) { MISTAKE(MPI_Win_wait(s.window)); }},
    {"MPI_Win_test, without post", kNowhere, MPI_ERR_RMA_SYNC, 0,
     "wait or test without a post; call MPI_Win_post first",
     [](Scene& s) { MISTAKE(MPI_Win_test(s.window, &s.flag)); }},
};

}  // namespace

Cases outside_epochs() { return kCasesOfOutsideEpochs; }

}  // namespace misuse
