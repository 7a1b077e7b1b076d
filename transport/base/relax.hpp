// SPDX-License-Identifier: BSD-3-Clause
// What a core does between two looks at a word that another core will change.
#pragma once

namespace farside {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace farside
