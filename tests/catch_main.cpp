// SPDX-License-Identifier: BSD-3-Clause
// main() of the unit tests that need no MPI. It is in a library, so that a test file with a main of its own
// wins.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
