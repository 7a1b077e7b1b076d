// SPDX-License-Identifier: BSD-3-Clause
// Mistakes that only the other process reveals: a lock of a posted window, a post of a locked one, MPI_MODE_NOPUT.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

// An update of a window whose owner has given MPI_MODE_NOPUT.
template <int (Scene::*kOperation)(int)>
void into_posted_without_put(Scene& s) {
  CHECK_MPI(MPI_Win_post(s.to_next, MPI_MODE_NOPUT, s.window));
  CHECK_MPI(MPI_Win_start(s.to_next, 0, s.window));
  MISTAKE_AT(s.next, (s.*kOperation)(s.next));
  s.complete_and_wait();
}
template <int (Scene::*kOperation)(int)>
void into_fenced_without_put(Scene& s) {
  CHECK_MPI(MPI_Win_fence(MPI_MODE_NOPUT, s.window));
  MISTAKE_AT(s.next, (s.*kOperation)(s.next));
  s.fence_off();
}

const Case kCasesOfOtherSide[] = {
    {"MPI_Win_lock, exclusive of a target that is posted", kPosted, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "lock of a target whose window is exposed by its MPI_Win_post; lock it after the target's MPI_Win_wait",
     [](Scene& s) {
       s.barrier();
       s.mistake_of_lock(MPI_LOCK_EXCLUSIVE);
       s.barrier();
     }},
    {"MPI_Win_lock, shared of a target that is posted", kPosted, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "lock of a target whose window is exposed by its MPI_Win_post; lock it after the target's MPI_Win_wait",
     [](Scene& s) {
       s.barrier();
       s.mistake_of_lock(MPI_LOCK_SHARED);
       s.barrier();
     }},
    {"MPI_Win_post, while another rank holds an exclusive lock here", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "post while the own window is locked by some rank; post when all locks on this window were released",
     [](Scene& s) {
       s.lock_now(MPI_LOCK_EXCLUSIVE);
       s.barrier();
       MISTAKE(MPI_Win_post(s.to_next, 0, s.window));
       s.barrier();
       s.unlock();
     }},
    {"MPI_Win_post, while another rank holds a shared lock here", kNowhere, MPI_ERR_RMA_CONFLICT, MPI_ERR_RMA_SYNC,
     "post while the own window is locked by some rank; post when all locks on this window were released",
     [](Scene& s) {
       s.lock_now(MPI_LOCK_SHARED);
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
     "the target promised MPI_MODE_NOPUT", into_posted_without_put<&Scene::put>},
    {"MPI_Accumulate, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT", into_posted_without_put<&Scene::accumulate>},
    {"MPI_Fetch_and_op, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT", into_posted_without_put<&Scene::fetch_and_op>},
    {"MPI_Compare_and_swap, into an exposure posted with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT", into_posted_without_put<&Scene::compare_and_swap>},
    {"MPI_Put, into an exposure fenced with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT", into_fenced_without_put<&Scene::put>},
    {"MPI_Get_accumulate, into an exposure fenced with MPI_MODE_NOPUT", kNowhere, MPI_ERR_RMA_SYNC, MPI_ERR_ASSERT,
     "the target promised MPI_MODE_NOPUT", into_fenced_without_put<&Scene::get_accumulate>},
};

}  // namespace

Cases other_side() { return kCasesOfOtherSide; }

}  // namespace misuse
