// SPDX-License-Identifier: BSD-3-Clause
// Formats numbers and tables for terminals. ASCII only, since a fresh machine has no locale.
#pragma once

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/bench/catalogue.hpp"
#include "transport/base/log.hpp"

namespace farside::tools {

// Returns a figure with three significant digits and a suitable unit: "0.0381 us", "12.4 ms", "1.99 s", "9.60 GB/s",
// "46.8 M/s".
std::string with_unit(double value, bench::Unit unit);
// Returns a time in seconds as with_unit() does, and "0" for none.
std::string time_text(double seconds);

// Returns how many times as fast `value` is as `base`: "0.021x", "2.53x", "480x"; "<0.001x" and
// ">1000x" beyond these.
std::string ratio(double base, double value, bench::Unit unit);

template <class T>
void add_once(std::vector<T>& all, const T& one) {
  if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

// "1 rank", "3 ranks".
template <class Number>
std::string counted(Number number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

// Returns the text in lines of at most `width` characters, broken at spaces. The rest of a line begins below its last
// column, else below its first word, of a list further in. Longer words, rows of tables and long options stay whole.
std::string wrapped(std::string_view text, std::size_t width = 80);

// Prints a report: in a terminal with lines of its width; elsewhere, as for grep, one line for one thing.
void print_report(const std::string& text);

// Returns a command line that a shell splits into exactly these words.
std::string shell_line(const std::vector<std::string>& words);

// Splits a command line into words as a shell does (quotes and backslashes only).
std::vector<std::string> shell_words(std::string_view line);

// Splits a text at each of the separators; parts may be empty.
std::vector<std::string> split(std::string_view text, std::string_view separators);

// Reads a whole file. Throws std::runtime_error that names the file and the reason if it cannot be read, has more than
// 128 MiB, or is a pipe or a device, whose data may never come.
std::string read_file(const std::string& path);

// Writes a file. On failure it prints the reason on stderr, as `program`, and returns false.
bool write_file(std::string_view program, const std::string& file, const std::string& text);

// Returns an HTML page of pages.hpp with the JSON in its script element, which must not contain an end tag.
std::string page_with(std::string_view page, std::string_view json);

class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Adds a row of cells that fmt formats.
  template <class... Cells>
  void add(const Cells&... cells) {
    rows_.push_back({fmt::format("{}", cells)...});
  }
  // Aligns the first column to the left and the others to the right, with a line under the header.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// JSON as the commands read and write it: the members of an object keep their order.
using Json = nlohmann::ordered_json;

// Returns the JSON as text; with indent >= 0 each member has its own line. Bytes that are not UTF-8, as paths and
// variables may have, become U+FFFD; dump() by itself throws an exception.
inline std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Parses JSON that may be damaged or forged. Throws a std::exception if it is no JSON or too deep for functions that
// recurse (dump, copies), or if a name has control characters. In values these are replaced.
Json parse_json(std::string_view text);
// The same for a line of a program that may print others, too. What is no such JSON is_discarded().
Json parse_json_line(std::string_view line);

}  // namespace farside::tools
