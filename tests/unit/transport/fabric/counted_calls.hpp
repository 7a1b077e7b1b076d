// SPDX-License-Identifier: BSD-3-Clause
// Counts calls of the C library by a thread of this program, by functions that precede the library's own.
#pragma once

#include <cstdint>

namespace farside::testing {

// The calls of one thread. Under the thread sanitizer mutexes are not counted, since it has its own functions.
struct CountedCalls {
  std::uint64_t locks = 0;   // of mutexes (pthread_mutex_lock, pthread_mutex_trylock)
  std::uint64_t clocks = 0;  // reads of a clock (clock_gettime)
};
// Returns the counts since this thread's last call. `except`: a mutex that is not counted from now on.
CountedCalls take_counted_calls(const void* except = nullptr);

}  // namespace farside::testing
