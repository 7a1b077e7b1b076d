// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/entries/spawned_variables.hpp"

#include <algorithm>
#include <cstdlib>

#include <catch2/catch.hpp>

using namespace farside::pmpi;

namespace {
using Variables = std::vector<std::pair<std::string, std::string>>;
}  // namespace

TEST_CASE("A list for started ranks stays within the runtime's limit") {
  const Variables variables{{"LD_PRELOAD", "/lib/a.so"}, {"FARSIDE_CHECK", "strict"}, {"FARSIDE_LOG", "1"}};
  const std::string all = "LD_PRELOAD=/lib/a.so\nFARSIDE_CHECK=strict\nFARSIDE_LOG=1";
  CHECK(list_for_spawned(variables, all.size()).text == all);
  const VariableList shorter = list_for_spawned(variables, all.size() - 1);
  CHECK(shorter.text == "LD_PRELOAD=/lib/a.so\nFARSIDE_CHECK=strict");
  CHECK(shorter.left_out == "FARSIDE_LOG");
  // What is too long does not keep out what is short.
  const VariableList gap = list_for_spawned(variables, std::string("LD_PRELOAD=/lib/a.so\nFARSIDE_LOG=1").size());
  CHECK(gap.text == "LD_PRELOAD=/lib/a.so\nFARSIDE_LOG=1");
  CHECK(gap.left_out == "FARSIDE_CHECK");
  CHECK(list_for_spawned(variables, 4).left_out == "LD_PRELOAD, FARSIDE_CHECK, FARSIDE_LOG");
}

TEST_CASE("The settings of a process are among what started ranks get") {
  ::setenv("FARSIDE_LOG", "warn", 1);
  ::setenv("FARSIDE_TEST_BUILD", "somewhere", 1);  // of scripts, no setting
  const Variables found = variables_for_spawned();
  ::unsetenv("FARSIDE_LOG");
  ::unsetenv("FARSIDE_TEST_BUILD");
  CHECK(std::ranges::count(found, std::pair<std::string, std::string>("FARSIDE_LOG", "warn")) == 1);
  CHECK(std::ranges::count(found, "FARSIDE_TEST_BUILD", &Variables::value_type::first) == 0);
}
