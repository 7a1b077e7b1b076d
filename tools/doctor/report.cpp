// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/common/host.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"

namespace farside::tools {
namespace {

constexpr std::size_t kShortestWord = 3;

bool is_word_byte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '_' || byte == '-';
}

bool is_path_byte(char byte) {
  return is_word_byte(byte) || std::string_view("/.+@%~=").find(byte) != std::string::npos;
}

bool is_address_byte(char byte) {
  return std::isxdigit(static_cast<unsigned char>(byte)) != 0 || byte == '.' || byte == ':';
}

// The length of the longest beginning of the text whose bytes are such.
template <class Is>
std::size_t run(std::string_view text, Is&& is) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is) - text.begin());
}

// Folders that every system of this kind has.
bool is_systems(std::string_view path) {
  static constexpr auto kFolders = std::to_array<std::string_view>(
      {"/usr/", "/lib", "/bin/", "/sbin/", "/etc/", "/opt/", "/proc/", "/sys/", "/dev/", "/run/", "/boot/"});
  return std::ranges::any_of(kFolders, [&](std::string_view folder) { return path.starts_with(folder); });
}

// Returns the length of an IP address at the beginning of the text; 0 if there is none.
std::size_t address_length(std::string_view text) {
  std::string word(text.substr(0, run(text, is_address_byte)));
  while (!word.empty() && (word.back() == '.' || word.back() == ':') && !word.ends_with("::")) word.pop_back();
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  if (inet_pton(AF_INET6, word.c_str(), parsed.data()) == 1 && word.size() > 2) return word.size();
  // Behind an address of version 4 there may be a port.
  word = word.substr(0, word.find(':'));
  return inet_pton(AF_INET, word.c_str(), parsed.data()) == 1 ? word.size() : 0;
}

}  // namespace

Anonymizer Anonymizer::of(const Json& examination) {
  std::map<std::string, std::string> names;
  const auto add_host = [&](const std::string& host, int number) {
    const std::string pseudonym = fmt::format("host-{}", number);
    names.try_emplace(host, pseudonym);
    names.try_emplace(host.substr(0, host.find('.')), pseudonym);
  };
  int hosts = 0;
  for (const Json& rank : part_of(examination, "ranks")) {
    const std::string host = rank.at("host");
    if (!names.contains(host)) add_host(host, ++hosts);
  }
  utsname system{};
  uname(&system);
  if (!names.contains(system.nodename)) add_host(system.nodename, ++hosts);
  if (const passwd* user = getpwuid(geteuid()); user != nullptr && user->pw_uid != 0)
    names.try_emplace(user->pw_name, "USER");
  names.erase("localhost");
  names.erase("");
  return Anonymizer(std::move(names));
}

std::string Anonymizer::text(std::string_view original) const {
  if (const auto name = names_.find(std::string(original)); name != names_.end()) return name->second;
  std::string result;
  for (std::size_t at = 0; at < original.size();) {
    const std::string_view left = original.substr(at);
    const bool begins_word = at == 0 || !is_word_byte(original[at - 1]);
    if (left[0] == '/' && (at == 0 || !is_path_byte(original[at - 1]) || original[at - 1] == '=')) {
      std::string_view path = left.substr(0, run(left, is_path_byte));
      while (path.ends_with('.')) path.remove_suffix(1);  // of the sentence
      const std::size_t last = path.find_last_of('/');
      result += is_systems(path) || last == 0 ? std::string(path) : fmt::format("...{}", path.substr(last));
      at += path.size();
      continue;
    }
    if (begins_word && (at == 0 || original[at - 1] != '.')) {
      const std::size_t length = address_length(left);
      if (length > 0 && (length == left.size() || !is_word_byte(left[length]))) {
        result += "ADDRESS";
        at += length;
        continue;
      }
    }
    if (begins_word && is_word_byte(left[0])) {
      // The longest name first: a host with its domain.
      const std::string* stands_for = nullptr;
      std::size_t length = 0;
      for (const auto& [name, pseudonym] : names_) {
        if (name.size() < kShortestWord || name.size() < length || !left.starts_with(name)) continue;
        if (name.size() < left.size() && is_word_byte(left[name.size()])) continue;
        stands_for = &pseudonym;
        length = name.size();
      }
      if (stands_for == nullptr) {
        length = run(left, is_word_byte);
        result += left.substr(0, length);
      } else {
        result += *stands_for;
      }
      at += length;
      continue;
    }
    result += original[at++];
  }
  return result;
}

Json Anonymizer::json(Json original) const {
  if (original.is_string()) return text(original.get<std::string>());
  if (original.is_structured())
    for (Json& member : original) member = json(std::move(member));
  return original;
}

// ---- report ----

std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer) {
  const auto shown = [&](const std::string& text) { return anonymizer == nullptr ? text : anonymizer->text(text); };
  const auto shown_json = [&](const Json& json) { return anonymizer == nullptr ? json : anonymizer->json(json); };
  std::string text = fmt::format("```\nversions\n  farside {}, {}, Linux {}\n", text_of(info, "farside"), system_name(),
                                 text_of(part_of(info, "machine"), "kernel"));
  for (const Json& runtime : part_of(info, "runtimes"))
    if (!text_of(runtime, "version").empty()) text += fmt::format("  {}\n", text_of(runtime, "version"));
  text += fmt::format("  libfabric {}\n", text_of(part_of(info, "libfabric"), "version"));

  text += "\nenvironment\n";
  bool any = false;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("FARSIDE_") && !name.starts_with("FI_")) continue;
    text += fmt::format("  {}={}\n", name, shown(value));
    any = true;
  }
  if (!any) text += "  no variable FARSIDE_* or FI_*\n";

  // The causes are found anew, with the names in them replaced.
  Json all = shown_json(examination);
  all["causes"] = causes_of(all);
  text += fmt::format("\nfarside doctor\n\n{}\nfarside info\n\n{}```\n", examination_text(all),
                      info_text(shown_json(info)));
  return text;
}

}  // namespace farside::tools
