// SPDX-License-Identifier: BSD-3-Clause
#include "tools/run_words.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "tools/linkage.hpp"

namespace farside::tools {
namespace {

// Options of mpirun (Open MPI's mpirun(1), `mpiexec.hydra --help` of MPICH), without their dashes, with the number of
// their values. Between another option and a word that is no option, "--" is needed.
const OptionValues kMpirunOptions{
    {"allow-run-as-root", 0},
    {"bind-to", 1},
    {"display-map", 0},
    {"env", 2},
    {"f", 1},
    {"genv", 2},
    {"genvall", 0},
    {"H", 1},
    {"host", 1},
    {"hostfile", 1},
    {"hosts", 1},
    {"iface", 1},
    {"l", 0},
    {"launcher", 1},
    {"launcher-exec", 1},
    {"machinefile", 1},
    {"map-by", 1},
    {"mca", 2},
    {"n", 1},
    {"N", 1},
    {"np", 1},
    {"oversubscribe", 0},
    {"ppn", 1},
    {"prefix", 1},
    {"rank-by", 1},
    {"report-bindings", 0},
    {"tag-output", 0},
    {"wdir", 1},
    {"x", 1},
};

// Returns the number of values behind this option; nothing if it is not known.
std::optional<int> values_of(const std::string& option, const OptionValues& own) {
  const std::size_t equals = option.find('=');
  if (const auto found = own.find(option.substr(0, equals)); found != own.end())
    return equals == std::string::npos ? found->second : 0;
  if (option.starts_with("--") && equals != std::string::npos) return 0;
  const auto found = kMpirunOptions.find(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  return found == kMpirunOptions.end() ? std::nullopt : std::optional(found->second);
}

RunWords split_at(const std::vector<std::string>& words, std::size_t options, std::size_t program) {
  const auto at = [&](std::size_t index) { return words.begin() + static_cast<std::ptrdiff_t>(index); };
  return {{words.begin(), at(options)}, {at(program), words.end()}};
}

}  // namespace

Result<RunWords> split_run_words(const std::vector<std::string>& words, const OptionValues& own) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") return split_at(words, i, i + 1);
    if (!words[i].starts_with('-') || words[i] == "-") return split_at(words, i, i);
    const std::optional<int> values = values_of(words[i], own);
    if (values) {
      i += static_cast<std::size_t>(*values);
    } else if (i + 1 < words.size() && !words[i + 1].starts_with('-')) {
      const auto dashes = std::find(words.begin(), words.end(), "--");
      if (dashes == words.end()) {
        return cannot("{} may be the program, or the value of {}: put -- in front of the program", words[i + 1],
                      words[i]);
      }
      const auto place = static_cast<std::size_t>(dashes - words.begin());
      return split_at(words, place, place + 1);
    }
  }
  return split_at(words, words.size(), words.size());
}

std::string take_ranks(std::vector<std::string>& options) {
  std::string ranks;
  for (auto option = options.begin(); option != options.end();) {
    if ((*option == "-n" || *option == "-np" || *option == "--np") && option + 1 != options.end()) {
      ranks = option[1];
      option = options.erase(option, option + 2);
    } else {
      ++option;
    }
  }
  return ranks;
}

}  // namespace farside::tools
