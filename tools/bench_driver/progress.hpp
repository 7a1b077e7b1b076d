// SPDX-License-Identifier: BSD-3-Clause
// Shows the progress of a long command: on a terminal one line with a bar that is rewritten, elsewhere one line per
// step.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace farside::tools {

class Progress {
 public:
  Progress(int total, bool rewrites);
  void begin(const std::string& what);                           // a step begins
  void end(const std::string& what, const std::string& result);  // the step is done
  void skip();                                                   // a step is skipped
  void tick();                                                   // shows that the command is still running
  void say(const std::string& line);                             // prints a line that is not overwritten
  void clear();                                                  // removes the bar

 private:
  std::string bar() const;  // "[####------]  42% 1:10 left"
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
