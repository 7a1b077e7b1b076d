// SPDX-License-Identifier: BSD-3-Clause
// How the next call of a sequence is drawn, the same on every rank.
#pragma once

#include <cstdint>
#include <random>

#include "sequences/model.hpp"

namespace sequences {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937 random_;
};

// Any call, legal or not, of one rank or, where all may, of all.
Step draw(Dice& dice, Model& model);

}  // namespace sequences
