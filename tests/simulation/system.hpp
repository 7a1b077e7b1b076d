// SPDX-License-Identifier: BSD-3-Clause
// The calls of the C library by which threads wait, take the time, and find other processes, for all ranks: this
// executable comes first in the dynamic linker's search order, so its definitions serve the ranks' copies of the
// program, and libstdc++. Outside of the simulation's threads they are the C library's. Here is what these share:
// waits.cpp, threads.cpp, processes.cpp.
#pragma once

#include "tests/simulation/host.hpp"

namespace simulation {

constexpr Key kDescriptors{1, 0};  // those who poll
Key key_of_word(const void* word);

}  // namespace simulation

// The C library's function, for calls that the simulation does not answer.
#define REAL(name, ...)                                                                     \
  ([&] {                                                                                    \
    static auto* const own_##name = reinterpret_cast<decltype(&::name)>(host::find(#name)); \
    return own_##name(__VA_ARGS__);                                                         \
  }())
