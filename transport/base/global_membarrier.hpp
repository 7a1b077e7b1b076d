// SPDX-License-Identifier: BSD-3-Clause
// A memory barrier on all threads of other processes, ordered by one of them (membarrier(2)): what is done often then
// needs no barrier of its own where it stores one word and loads another, because the one that seldom looks makes it
// for all.
#pragma once

namespace farside {

// Whether this process takes part. Asked for when farside is loaded: where there is one thread, that is a microsecond,
// later some 10 ms.
bool supports_global_membarrier();

// All threads of the processes that take part come past a full memory barrier between the call and its return, and so
// does the caller. False, and nothing is sure, if the kernel refuses.
bool global_membarrier();

}  // namespace farside
