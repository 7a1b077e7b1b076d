// SPDX-License-Identifier: BSD-3-Clause
// With FARSIDE_STATS or FARSIDE_TRACE, SIGTERM and SIGUSR1 write the files of this rank, because batch systems send
// these signals before they end a job. The handler only wakes a thread of farside, so the interrupted thread continues
// at once, and gives back any mutex that it holds. That thread has another one write the files, and waits for it for a
// few seconds at most. Then the default action of the signal follows: it ends the process. Of a job of several ranks it
// follows a second later: when one rank has died by a signal, Hydra (MPICH) kills the others within 50 ms, which may be
// writing still.
//
// A handler of the program stays, whether it was installed before or is installed later, and so does SIG_IGN. MPICH has
// a handler of its own for SIGUSR1, by which its launcher announces failed processes: it is called, and the program
// continues when the files are written. A handler that a library had installed when farside was loaded, or installs
// while the runtime starts, is called after the writing, in the place of the default action. In a child of fork(2) the
// earlier action applies.
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

// To be called when a window is made, after learn_launch() (this_job.hpp). Does nothing if no file is asked for, or if
// the handlers are installed.
void begin_files_on_signal();
// The files are written now, by MPI_Finalize: the signals get the actions that they had before.
void end_files_on_signal();

}  // namespace farside::pmpi
