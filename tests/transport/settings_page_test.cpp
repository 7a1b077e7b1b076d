// SPDX-License-Identifier: BSD-3-Clause
// The settings as tools/docs/settings.md shows them are the settings that there are.
#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "transport/base/settings.hpp"

namespace farside::settings_page_test {

TEST_CASE("settings.md has the table of settings as the library has it") {
  std::ifstream file(FARSIDE_SOURCE_DIR "/tools/docs/settings.md");
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(!text.str().empty());
  for (const farside::Setting& setting : farside::settings_table()) {
    const std::string shown =
        *setting.default_value == '\0' ? std::string("unset") : fmt::format("`{}`", setting.default_value);
    const std::string row =
        fmt::format("| `{}` | {} | {} | {} |\n", setting.name, shown, setting.allowed, setting.help);
    CAPTURE(row);
    CHECK(text.str().find(row) != std::string::npos);
  }
}

}  // namespace farside::settings_page_test
