// SPDX-License-Identifier: BSD-3-Clause
// What a thread of this program asks of the C library, by functions in front of the library's own.
#pragma once

#include <cstdint>

namespace farside::testing {

// The calls of one thread. Under the thread sanitizer mutexes are not counted, since it has its own functions.
struct CountedCalls {
  std::uint64_t locks = 0;   // of mutexes (pthread_mutex_lock, pthread_mutex_trylock)
  std::uint64_t clocks = 0;  // reads of a clock (clock_gettime)
};
// The numbers since the last call by this thread. `except`: a mutex that is not counted from now on.
CountedCalls take_counted_calls(const void* except = nullptr);

}  // namespace farside::testing
