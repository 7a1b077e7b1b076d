// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_STATS or FARSIDE_TRACE, SIGTERM and SIGUSR1 write the files of this rank, because batch systems send
// these signals before they end a job. The handler only wakes a thread of farside, which writes the files: the
// interrupted thread continues and can release any mutex that it holds. The default action of the signal follows and
// ends the process. In a job of several ranks it follows one second later. The reason is Hydra (MPICH): when one rank
// has died by a signal, Hydra kills the other ranks within 50 ms, and these may still be writing.
//
// A handler of the program stays installed, whether the program installs it before or later, and so does SIG_IGN. A
// handler that a library had installed when farside was loaded, or installs while the runtime starts, is called after
// the files are written, in place of the default action. (MPICH has one of SIGUSR1, by which its launcher announces
// failed processes, and PSM one of SIGTERM.) In a child of fork(2) the earlier action applies.
//
// Thread safety: any. Cost: one thread that sleeps.
#pragma once

#include <array>

namespace farside::pmpi {

// Around the start of the runtime, which may load libraries with handlers of their own (Open MPI: those of PSM, which
// it unloads where there is no such adapter).
class HandlersOfLibraries {
 public:
  HandlersOfLibraries();
  ~HandlersOfLibraries();
  HandlersOfLibraries(const HandlersOfLibraries&) = delete;
  HandlersOfLibraries& operator=(const HandlersOfLibraries&) = delete;

 private:
  std::array<void*, 2> before_;  // of SIGTERM and SIGUSR1
};

// Precondition: the settings ask for a file, and the launch is known (this_job()). Does nothing if the handlers are
// installed.
void begin_files_on_signal();
// To be called at the end of MPI, which writes the files itself. Restores the actions that the signals had before.
void end_files_on_signal();

}  // namespace farside::pmpi
