// SPDX-License-Identifier: BSD-3-Clause
// Comes first in each file of farside that is compiled for the simulation: the processor's counter shows virtual time.
#pragma once

extern "C" unsigned long long simulation_counter();
#define __builtin_ia32_rdtsc simulation_counter
