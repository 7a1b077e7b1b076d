// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/ranges.h>

namespace farside::tools {
namespace {

// Three significant digits, never an exponent.
std::string three_digits(double value) {
  if (!(value > 0) || !std::isfinite(value)) return fmt::format("{}", value);
  const int magnitude = static_cast<int>(std::floor(std::log10(value)));
  const int decimals = 2 - magnitude;
  if (decimals > 0) return fmt::format("{:.{}f}", value, std::min(decimals, 6));
  const double step = std::pow(10.0, -decimals);
  return fmt::format("{:.0f}", std::round(value / step) * step);
}

}  // namespace

std::string time_text(double seconds) {
  return seconds <= 0 ? "0" : with_unit(seconds * 1e6, bench::Unit::kMicroseconds);
}

std::string with_unit(double value, bench::Unit unit) {
  switch (unit) {
    case bench::Unit::kMegabytes:
      return value < 1000 ? three_digits(value) + " MB/s" : three_digits(value / 1000) + " GB/s";
    case bench::Unit::kPerSecond:
      if (value < 1000) return three_digits(value) + " /s";
      return value < 1e6 ? three_digits(value / 1e3) + " k/s" : three_digits(value / 1e6) + " M/s";
    case bench::Unit::kRatio: return three_digits(value);
    case bench::Unit::kMicroseconds: break;
  }
  if (value < 1000) return three_digits(value) + " us";
  return value < 1e6 ? three_digits(value / 1e3) + " ms" : three_digits(value / 1e6) + " s";
}

// Where one of the two waits for something else (a target that computes), more digits say nothing.
constexpr double kMostTimes = 1000;

std::string ratio(double base, double value, bench::Unit unit) {
  if (!(base > 0) || !(value > 0)) return "-";
  const double times = bench::more_is_better(unit) ? value / base : base / value;
  if (times > kMostTimes) return fmt::format(">{:.0f}x", kMostTimes);
  if (times < 1 / kMostTimes) return fmt::format("<{}x", 1 / kMostTimes);
  // Near 1 a third digit would be within the noise.
  return (times >= 0.1 && times < 10 ? fmt::format("{:.2f}", times) : three_digits(times)) + "x";
}

std::string wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  const bool tables = text.find("-+-") != std::string::npos;
  for (std::string line : split(text, "\n")) {
    const std::size_t begin = line.find_first_not_of(" !-"), gap = line.rfind("  ", width / 2);
    const bool column = gap != std::string::npos && gap > begin;
    const bool whole = (tables && line.find(" | ") != std::string::npos) || (!column && line.starts_with("  --"));
    const std::size_t indent = column ? gap + 2 : begin == 2 ? 4 : begin;
    while (line.size() > width && !whole) {
      std::size_t end = line.rfind(' ', width);
      if (end == std::string::npos || end < indent) end = line.find(' ', width);
      if (end == std::string::npos) break;
      lines.push_back(line.substr(0, end));
      line.replace(0, end + 1, indent, ' ');
    }
    lines.push_back(std::move(line));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

void print_report(const std::string& text) {
  constexpr int kNarrowest = 40;
  winsize size{};
  const bool terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= kNarrowest;
  fmt::print("{}", terminal ? wrapped(text, size.ws_col) : text);
}

std::string shell_line(const std::vector<std::string>& words) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%^";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += fmt::format("'{}'", fmt::join(split(word, "'"), "'\\''"));
  }
  return line;
}

std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char byte = line[i];
    if (quote == 0 && (byte == ' ' || byte == '\t' || byte == '\n')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (byte == quote)
      quote = 0;
    else if (quote == 0 && (byte == '\'' || byte == '"'))
      quote = byte;
    else if (byte == '\\' && quote != '\'' && i + 1 < line.size())
      words.back() += line[++i];
    else
      words.back() += byte;
  }
  return words;
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string read_file(const std::string& path) {
  constexpr std::uintmax_t kMost = std::uintmax_t{128} << 20;
  std::error_code failed;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
  std::string reason = failed ? failed.message() : bytes > kMost ? "it has more than 128 MiB" : "";
  if (std::error_code none; std::filesystem::is_other(path, none)) reason = "it is no regular file";
  std::string text(reason.empty() ? bytes : 0, '\0');
  if (reason.empty() && !std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(bytes)))
    reason = std::strerror(errno);
  if (!reason.empty()) throw std::runtime_error(fmt::format("{}: cannot be read ({})", path, reason));
  return text;
}

bool write_file(std::string_view program, const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) fmt::print(stderr, "{}: cannot write {}: {}\n", program, file, std::strerror(errno));
  return static_cast<bool>(out);
}

std::string page_with(std::string_view page, std::string_view json) {
  constexpr std::string_view kPlace = "FARSIDE_DATA_HERE";
  const std::size_t place = page.find(kPlace);
  return fmt::format("{}{}{}", page.substr(0, place), fmt::join(split(json, "<"), "\\u003c"),
                     page.substr(place + kPlace.size()));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::vector<std::string> lines;
  for (const auto& row : rows_) {
    std::string line = fmt::format("{:<{}}", row.front(), widths.front());
    for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format(" | {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  lines.insert(lines.begin() + 1, fmt::format("{}", fmt::join(rule, "-+-")));
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

Json parse_json(std::string_view text) {
  constexpr int kMostLevels = 64;
  return Json::parse(text, [](int level, Json::parse_event_t event, Json& value) {
    if (level > kMostLevels) throw std::runtime_error("values are nested too deeply");
    if (!value.is_string()) return true;
    const std::string& given = value.get_ref<const std::string&>();
    if (std::string clean = printable(given); clean != given) {
      if (event == Json::parse_event_t::key) throw std::runtime_error(clean + ": a name with control characters");
      value = std::move(clean);
    }
    return true;
  });
}

Json parse_json_line(std::string_view line) {
  try {
    return parse_json(line);
  } catch (const std::exception&) {
    return Json::value_t::discarded;
  }
}

}  // namespace farside::tools
