// SPDX-License-Identifier: BSD-3-Clause
// Catch2 itself, which takes long to compile: once for all tests.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch_session.hpp"

#include <catch2/catch.hpp>

int run_catch(int argc, char** argv) { return Catch::Session().run(argc, argv); }
