// SPDX-License-Identifier: BSD-3-Clause
// Runs one program (a launcher with its ranks) to its end, without a shell, and leaves no process behind.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace farside::tools {

using Environment = std::map<std::string, std::string>;
Environment current_environment();

// Returns the value of a variable of this process; empty if it is unset.
std::string variable(const char* name);

struct ChildEnd {
  enum class How {
    kExited,       // `code` is the exit status
    kSignalled,    // `code` is the signal
    kSilent,       // wrote no line for too long, and was ended
    kInterrupted,  // this process got SIGINT, SIGTERM or SIGHUP, and ended the child
    kNotStarted,   // `code` is errno (a program that cannot be executed ends with 127 and says why on stderr)
  };
  How how = How::kNotStarted;
  int code = 0;
  std::string error_output;  // the last part of its stderr
};

struct ChildRequest {
  std::vector<std::string> arguments;  // the first is the program; searched in PATH if it has no slash
  Environment environment = current_environment();
  std::function<std::string()> task;  // runs in place of a program; its result is the child's stdout
  double silence_seconds = 60;  // after this time without a line of output the child is ended; on_line may change it
  std::function<void(std::string_view)> on_line;  // each line of its stdout, without the newline
};

// Call once before run_child. Processes that a child leaves behind then become children of this process, so that
// run_child can end exactly those; SIGINT, SIGTERM and SIGHUP end the running child first.
void prepare_for_children();

// Undoes prepare_for_children(), for a process that becomes another program, or starts no more children: signals are as
// they were, and one that has arrived meanwhile ends this process.
void forget_children();

// Runs a child with its own process group and /dev/null as stdin. At the return the child and all its descendants
// have ended. At most one child runs at a time; not thread-safe.
ChildEnd run_child(const ChildRequest& request);

// Replaces this process by the program (searched in PATH if it has no slash), after forget_children(). Returns only on
// failure, with errno.
int become_program(const std::vector<std::string>& arguments, const Environment& environment);

// "exit status 1", "signal 11 (Segmentation fault)", "no output for too long, ended"
std::string end_in_words(const ChildEnd& end);

struct Attempt {
  bool answered = false;
  std::string answer;  // the result of the task
  std::string end;     // if there is no answer: end_in_words()
};

// Returns the lines of a launcher's stderr that probably name the cause, separated by " / ": those of farside, else the
// first three that are not decoration. Lines that ranks repeat count once.
std::string telling_lines(const std::string& errors);

// Runs `task`, which may crash, hang or print, in a child of this process, which must have one thread only.
Attempt attempt(const std::function<std::string()>& task, double seconds = 20);

}  // namespace farside::tools
