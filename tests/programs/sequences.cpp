// SPDX-License-Identifier: BSD-3-Clause
// Random sequences of legal and illegal calls, against a plain model of the standard: each call must succeed or be
// refused as the model says. A refusal prints one line, a success none, and nothing hangs. All ranks draw the same
// sequence and know the calls of the others: a call that may wait is made only if the model says that it can end, and a
// collective call is made by all ranks.
//
//   sequences [create] [seed S] [sequences N] [only Q] [threads T]
//
// Q: one sequence only, to repeat a failure. T: the calls of a rank are made by T threads in turn. Meanwhile the other
// threads make calls that are allowed, or refused, before the call as after it.
#include <algorithm>
#include <string_view>

#include "sequences/draw.hpp"
#include "sequences/model.hpp"
#include "sequences/stage.hpp"

namespace {

using namespace sequences;  // NOLINT(google-build-using-namespace)

constexpr int kSteps = 150;  // steps of a sequence; then all epochs are ended

// Ends all epochs by legal calls, and frees the window.
void end(Stage& stage, Model& model) {
  const auto make = [&](int actor, Kind kind, int target = 0, std::set<int> group = {}, int assert = 0) {
    Step step;
    step.actor = actor;
    step.kind = kind;
    step.target = target;
    step.group = std::move(group);
    step.assert = assert;
    stage.make(model, step);
  };
  for (int rank = 0; rank < model.ranks(); ++rank) {
    if (model.of(rank).started) make(rank, Kind::kComplete);
    if (model.of(rank).all) make(rank, Kind::kUnlockAll);
    while (!model.of(rank).locks.empty()) make(rank, Kind::kUnlock, model.of(rank).locks.begin()->first);
  }
  for (int rank = 0; rank < model.ranks(); ++rank) {
    if (model.of(rank).waiting_posts.empty()) continue;
    make(rank, Kind::kStart, 0, model.of(rank).waiting_posts);
    make(rank, Kind::kComplete);
  }
  for (int rank = 0; rank < model.ranks(); ++rank)
    if (model.of(rank).posted) make(rank, Kind::kWait);
  make(Step::kEverybody, Kind::kFence, 0, {}, MPI_MODE_NOSUCCEED);
  make(Step::kEverybody, Kind::kFree);
}

void run(Stage& stage, std::uint32_t seed, int sequence, int ranks) {
  stage.begin("seed " + std::to_string(seed) + ", only " + std::to_string(sequence));
  Dice dice(seed * 1000003U + static_cast<std::uint32_t>(sequence));
  Model model(ranks);
  for (int i = 0; i < kSteps; ++i) {
    // Most steps are legal, or few epochs would ever open.
    Step step;
    for (int tries = dice.one_in(3) ? 1 : 6; tries > 0; --tries) {
      step = draw(dice, model);
      if (expected_errors(model, step, std::max(step.actor, 0)).empty()) break;
    }
    // A conflict is found at the target, after the same waits as those of a legal call.
    const int judged = std::max(step.actor, 0);
    Classes found_here = expected_errors(model, step, judged);
    found_here.erase(MPI_ERR_RMA_CONFLICT);
    if (found_here.empty() && !can_end(model, step, judged)) continue;
    stage.make(model, step);
  }
  end(stage, model);
}

}  // namespace

int main(int argc, char** argv) {
  const bool threaded = std::find(argv, argv + argc, std::string_view("threads")) != argv + argc;
  check::Program program(argc, argv, threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  int level = 0;
  CHECK_MPI(MPI_Query_thread(&level));
  if (threaded && level < MPI_THREAD_MULTIPLE) return check::kSkipped;
  const auto seed = static_cast<std::uint32_t>(program.seed());
  const int only = program.number("only", -1);
  const int sequences = program.number("sequences", 100);
  const int rank = check::rank();
  const int ranks = check::size();
  Stage stage(program.memory(), rank, threaded ? program.number("threads", 3) : 0);
  if (rank == 0) std::printf("seed %u, %d sequences\n", seed, only < 0 ? sequences : 1);
  for (int sequence = 0; sequence < sequences; ++sequence)
    if (only < 0 || only == sequence) run(stage, seed, sequence, ranks);
  if (rank == 0) {
    std::printf("%ld calls allowed, %ld refused, %ld of other threads beside them\n", stage.allowed(), stage.refused(),
                stage.calls_beside());
  }
  return 0;
}
