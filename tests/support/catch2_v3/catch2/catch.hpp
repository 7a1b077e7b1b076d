// SPDX-License-Identifier: BSD-3-Clause
// Catch2 3 under the header and the names of Catch2 2, which the tests are written with: on the include path only where
// version 3 was found.
#pragma once

#include <string>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Approx;

namespace Catch::Matchers {

// Version 3 has this name for ranges (catch_matchers_contains.hpp, not included here), and another one for strings.
inline StringContainsMatcher Contains(const std::string& part) { return ContainsSubstring(part); }

}  // namespace Catch::Matchers
