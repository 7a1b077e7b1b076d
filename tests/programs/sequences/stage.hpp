// SPDX-License-Identifier: BSD-3-Clause
// Makes the calls of a sequence on a window, and checks the result and the output of each call.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "check.hpp"
#include "sequences/callers.hpp"
#include "sequences/model.hpp"

namespace sequences {

constexpr int kInts = 16;  // size of each rank's window

class Stage {
 public:
  // `threads`: 0, or how many threads make the calls by turns.
  Stage(check::Memory memory, int rank, int threads)
      : rank_(rank), memory_(memory), callers_(threads), fetched_(static_cast<std::size_t>(threads)) {
    check::section(section_);
  }
  // Makes the window; collective. `name` identifies the sequence in failure messages.
  void begin(std::string name);

  // Collective: the rank of the step acts, all ranks wait for it, and the model is updated.
  void make(Model& model, const Step& step);
  long allowed() const { return allowed_; }
  long refused() const { return refused_; }
  // The calls of other threads at this rank.
  long calls_beside() const { return calls_beside_; }

 private:
  // This rank's part of a step, and its checks.
  void act(Model& model, const Step& step);
  int call(const Step& step);
  // A call that another thread makes beside that of a step. Before and after the step, the model says the same of it,
  // and it leaves the model unchanged.
  struct Beside {
    Step step;
    Classes wrong;
  };
  std::vector<Beside> besides(Model& model, const Step& step) const;
  // Makes these calls in turn, some rounds. Returns how many were refused; fails if one is not as the model says.
  long make_besides(const std::vector<Beside>& besides, std::size_t thread);
  int lock(int type, int target, int assert);
  [[noreturn]] void fail(const std::string& what, const std::string& captured);

  int rank_;
  check::Memory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
  int memory_of_window_[kInts] = {};
  int value_ = 1;
  Callers callers_;
  static constexpr int kRoundsBeside = 8;
  std::vector<std::array<int, kInts>> fetched_;  // of the calls beside, by thread and target
  std::deque<int> results_;                      // one per call, since calls may be outstanding together
  int flag_ = 0;
  std::string name_;
  char section_[200] = "";
  std::vector<std::string> history_;
  long allowed_ = 0;
  long refused_ = 0;
  long calls_beside_ = 0;
};

}  // namespace sequences
