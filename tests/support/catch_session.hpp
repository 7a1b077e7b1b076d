// SPDX-License-Identifier: BSD-3-Clause
// For tests with a main() of their own.
#pragma once

// Runs the tests of this program. Returns 0 if they have passed.
int run_catch(int argc, char** argv);
