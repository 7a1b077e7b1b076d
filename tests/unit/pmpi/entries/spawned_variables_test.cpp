// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/entries/spawned_variables.hpp"

#include <algorithm>
#include <cstdlib>

#include <catch2/catch.hpp>

using namespace farside::pmpi;

namespace {
using Variables = std::vector<std::pair<std::string, std::string>>;
constexpr std::size_t kLong = 1000;
}  // namespace

TEST_CASE("Started ranks get what the list of the program does not set") {
  const Variables variables{{"LD_PRELOAD", "/lib/a.so"}, {"FARSIDE_LOG", "info"}};
  CHECK(add_variables("", "", variables, kLong).text == "LD_PRELOAD=/lib/a.so\nFARSIDE_LOG=info");
  CHECK(add_variables("A=1", "", variables, kLong).text == "A=1\nLD_PRELOAD=/lib/a.so\nFARSIDE_LOG=info");
  CHECK(add_variables("A=1\nFARSIDE_LOG=warn", "", variables, kLong).text ==
        "A=1\nFARSIDE_LOG=warn\nLD_PRELOAD=/lib/a.so");
  CHECK(add_variables("", "LD_PRELOAD=", variables, kLong).text == "FARSIDE_LOG=info");
  CHECK(add_variables("FARSIDE_LOGS=1", "", variables, kLong).text ==
        "FARSIDE_LOGS=1\nLD_PRELOAD=/lib/a.so\nFARSIDE_LOG=info");
}

TEST_CASE("A list for started ranks stays within the runtime's limit") {
  const Variables variables{{"LD_PRELOAD", "/lib/a.so"}, {"FARSIDE_CHECK", "strict"}, {"FARSIDE_LOG", "1"}};
  const std::string all = "LD_PRELOAD=/lib/a.so\nFARSIDE_CHECK=strict\nFARSIDE_LOG=1";
  CHECK(add_variables("", "", variables, all.size()).text == all);
  const VariableList shorter = add_variables("", "", variables, all.size() - 1);
  CHECK(shorter.text == "LD_PRELOAD=/lib/a.so\nFARSIDE_CHECK=strict");
  CHECK(shorter.left_out == std::vector<std::string>{"FARSIDE_LOG"});
  // What is too long does not keep out what is short.
  const VariableList gap = add_variables("", "", variables, std::string("LD_PRELOAD=/lib/a.so\nFARSIDE_LOG=1").size());
  CHECK(gap.text == "LD_PRELOAD=/lib/a.so\nFARSIDE_LOG=1");
  CHECK(gap.left_out == std::vector<std::string>{"FARSIDE_CHECK"});
  // The program's own list is passed on as it is.
  CHECK(add_variables("A=0123456789", "", {}, 4).text == "A=0123456789");
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
