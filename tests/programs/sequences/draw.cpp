// SPDX-License-Identifier: BSD-3-Clause
#include "sequences/draw.hpp"

namespace sequences {

Step draw(Dice& dice, Model& model) {
  Step step;
  const int ranks = model.ranks();
  step.kind = static_cast<Kind>(dice.below(kKinds));
  step.actor = dice.below(ranks);
  Process& me = model.of(step.actor);
  step.target = dice.one_in(20) ? MPI_PROC_NULL : dice.one_in(40) ? ranks : dice.one_in(60) ? -7 : dice.below(ranks);
  step.lock_type = dice.one_in(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;
  // Half the starts have a chance to begin.
  if (step.kind == Kind::kStart && dice.one_in(2)) {
    step.group = me.waiting_posts;
  } else {
    for (int rank = 0; rank < ranks; ++rank)
      if (dice.one_in(2)) step.group.insert(rank);
  }
  if (step.kind == Kind::kFence) {
    for (int bit : {MPI_MODE_NOSTORE, MPI_MODE_NOPUT, MPI_MODE_NOPRECEDE, MPI_MODE_NOSUCCEED})
      if (dice.one_in(4)) step.assert |= bit;
    // With more than three ranks, or three on two nodes, a rank's assertion does not reach all others.
    if (ranks > 2) step.assert &= ~MPI_MODE_NOPUT;
  }
  if (step.kind == Kind::kPost) {
    for (int bit : {MPI_MODE_NOSTORE, MPI_MODE_NOPUT})
      if (dice.one_in(4)) step.assert |= bit;
  }
  if (dice.one_in(15)) {
    if (step.is_operation()) {
      const Flaw flaws[] = {Flaw::kCount, Flaw::kType, Flaw::kDisplacement, Flaw::kRange, Flaw::kOp};
      step.flaw = flaws[dice.below(step.kind == Kind::kAccumulate ? 5 : 4)];
      if (step.kind == Kind::kFetchAndOp && step.flaw == Flaw::kCount) step.flaw = Flaw::kOp;
      // With MPI_PROC_NULL the counts are checked, but not types and displacements.
      if (step.target == MPI_PROC_NULL && step.flaw != Flaw::kOp) step.flaw = Flaw::kNone;
      if (step.target == MPI_PROC_NULL && step.kind == Kind::kFetchAndOp) step.flaw = Flaw::kNone;
    } else if (step.kind == Kind::kLock) {
      step.flaw = dice.one_in(2) ? Flaw::kLockType : Flaw::kAssert;
    } else if (step.kind == Kind::kFence || step.kind == Kind::kLockAll) {
      step.flaw = Flaw::kAssert;
    } else if (step.kind == Kind::kPost || step.kind == Kind::kStart) {
      step.flaw = dice.one_in(2) ? Flaw::kGroup : Flaw::kAssert;
    }
  }
  if (step.kind == Kind::kFence && step.flaw == Flaw::kNone) {
    // All ranks make the fence if it is legal for all.
    bool all_may = true;
    for (int rank = 0; rank < ranks; ++rank) all_may = all_may && expected_errors(model, step, rank).empty();
    if (all_may) step.actor = Step::kEverybody;
  }
  return step;
}

}  // namespace sequences
