// SPDX-License-Identifier: BSD-3-Clause
// Draws the next call of a sequence, the same on every rank.
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

// Returns a legal or illegal call of one rank or, if all may make it, of all ranks.
Step draw(Dice& dice, Model& model);

}  // namespace sequences
