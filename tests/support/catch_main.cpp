// SPDX-License-Identifier: BSD-3-Clause
// main() of the unit tests that need no MPI. It is in a library, so that a test file with a main of its own wins.
#include "tests/support/catch_session.hpp"

int main(int argc, char** argv) { return run_catch(argc, argv); }
