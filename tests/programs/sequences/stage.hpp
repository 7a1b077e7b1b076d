// SPDX-License-Identifier: BSD-3-Clause
// Makes the calls of a sequence on a window, and checks the result and the output of each call.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "check.hpp"
#include "sequences/model.hpp"

namespace sequences {

constexpr int kInts = 16;  // size of each rank's window

class Stage {
 public:
  Stage(check::Memory memory, int rank) : rank_(rank), memory_(memory) { check::section(section_); }
  // Makes the window; collective. `name` identifies the sequence in failure messages.
  void begin(std::string name);

  // Collective: the rank of the step acts, all ranks wait for it, and the model is updated.
  void make(Model& model, const Step& step);
  long allowed() const { return allowed_; }
  long refused() const { return refused_; }

 private:
  // This rank's part of a step, and its checks.
  void act(Model& model, const Step& step);
  int call(const Step& step);
  int lock(int type, int target, int assert);
  [[noreturn]] void fail(const std::string& what, const std::string& said);

  int rank_;
  check::Memory memory_;
  MPI_Win window_ = MPI_WIN_NULL;
  int memory_of_window_[kInts] = {};
  int value_ = 1;
  std::deque<int> results_;  // one per call, since calls may be outstanding together
  int flag_ = 0;
  std::string name_;
  char section_[200] = "";
  std::vector<std::string> history_;
  long allowed_ = 0;
  long refused_ = 0;
};

}  // namespace sequences
