// SPDX-License-Identifier: BSD-3-Clause
// How far a long command is: on a terminal one line with a bar that is rewritten, elsewhere a line for each
// step.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace farside::tools {

class Progress {
 public:
  Progress(int total, bool rewrites);
  void begin(const std::string& what);                           // a step
  void end(const std::string& what, const std::string& result);  // it is done
  void skip();                                                   // a step is left out
  void tick();                                                   // something is still going on
  void say(const std::string& line);                             // a line that stays
  void clear();                                                  // takes the bar away

 private:
  std::string bar() const;  // "[####------]  42% 1:10 left"
  std::string share() const;
  int total_;
  int done_ = 0;
  int skipped_ = 0;
  bool rewrites_;
  std::string current_;
  std::size_t turn_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Whether stdout is a terminal on which a line can be rewritten.
bool stdout_rewrites();

}  // namespace farside::tools
