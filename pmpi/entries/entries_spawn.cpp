// SPDX-License-Identifier: BSD-3-Clause
// Entry points: the start of processes (MPI 4.0 section 11.8.2). Under Open MPI 5 and later, the started ranks get
// farside and its settings from the rank that starts them (spawned_variables.hpp). Cost: no communication.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pmpi/entries/entry.hpp"
#include "pmpi/entries/spawned_variables.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/window/hints.hpp"
#include "transport/base/log.hpp"
#include "transport/base/settings.hpp"

namespace farside::pmpi {
namespace {

// Open MPI's keys: the present one, and its deprecated name.
constexpr const char* kVariables = "PMIX_ENVAR";
constexpr const char* kVariablesBefore = "env";
// The longest value that Open MPI takes. (The MPI ABI has a longer one than Open MPI 6.)
constexpr std::size_t kLongestValue = std::min(MPI_MAX_INFO_VAL, 255) - 1;

// Says once per process what the started ranks do not get.
void say_left_out(const std::string& names) {
  if (names.empty() || !Log::is_new("MPI_Comm_spawn")) return;
  log(LogLevel::kWarn,
      "MPI_Comm_spawn: no room for {} in the {} characters that Open MPI takes for the variables of the started ranks "
      "(info key {}); set them in the environment of mpirun itself",
      names, kLongestValue, kVariables);
}

// The info object of a call, with the variables. Freed at the end.
class SpawnInfo : NotCopied {
 public:
  // `info` may be MPI_INFO_NULL; it is not changed. If the program gives variables itself, or the runtime makes no
  // other info object, `info` itself is used.
  explicit SpawnInfo(MPI_Info info) : info_(info) {
    if (!value_of(info, kVariables).empty() || !value_of(info, kVariablesBefore).empty()) return;
    const VariableList list = list_for_spawned(variables_for_spawned(), kLongestValue);
    say_left_out(list.left_out);
    if (list.text.empty()) return;
    const int code = info == MPI_INFO_NULL ? runtime().Info_create(&made_) : runtime().Info_dup(info, &made_);
    if (code != MPI_SUCCESS) return;
    if (runtime().Info_set(made_, kVariables, list.text.c_str()) == MPI_SUCCESS) info_ = made_;
  }
  ~SpawnInfo() {
    if (made_ != MPI_INFO_NULL) (void)runtime().Info_free(&made_);
  }
  MPI_Info get() const { return info_; }

 private:
  MPI_Info info_;
  MPI_Info made_ = MPI_INFO_NULL;
};

// Whether variables are to be added to the call: under Open MPI 5 and later, whose launcher gives started ranks none of
// its own, and at the root, since the info objects of the other ranks are ignored.
bool adds_variables(int root, MPI_Comm communicator) {
  int rank = -1;
  return open_mpi_version() >= 5 && runtime().Comm_rank(communicator, &rank) == MPI_SUCCESS && rank == root;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> variables_for_spawned() {
  std::vector<std::pair<std::string, std::string>> result;
  const auto add_if_set = [&](const char* name) {
    const char* const value = secure_getenv(name);
    // (A value of several lines does not fit into the list.)
    if (value != nullptr && std::string_view(value).find('\n') == std::string_view::npos)
      result.emplace_back(name, value);
  };
  const char* const preloaded = secure_getenv("LD_PRELOAD");
  const std::string library = own_file_name();
  if (preloaded != nullptr && !library.empty() && std::string_view(preloaded).find(library) != std::string_view::npos)
    add_if_set("LD_PRELOAD");
  for (const Setting& setting : settings_table()) add_if_set(setting.name);
  return result;
}

VariableList list_for_spawned(const std::vector<std::pair<std::string, std::string>>& variables, std::size_t limit) {
  VariableList result;
  for (const auto& [name, value] : variables) {
    const std::string entry = (result.text.empty() ? "" : "\n") + name + "=" + value;
    if (result.text.size() + entry.size() <= limit) {
      result.text += entry;
    } else {
      result.left_out += (result.left_out.empty() ? "" : ", ") + name;
    }
  }
  return result;
}

}  // namespace farside::pmpi

using namespace farside::pmpi;

FARSIDE_ENTRY(Comm_spawn,
              (const char* command, char** words, int count, MPI_Info info, int root, MPI_Comm communicator,
               MPI_Comm* started, int* codes),
              (command, words, count, info, root, communicator, started, codes)) {
  if (!adds_variables(root, communicator))
    return runtime().Comm_spawn(command, words, count, info, root, communicator, started, codes);
  return without_window("MPI_Comm_spawn", [&] {
    const SpawnInfo with_variables(info);
    return runtime().Comm_spawn(command, words, count, with_variables.get(), root, communicator, started, codes);
  });
}

FARSIDE_ENTRY(Comm_spawn_multiple,
              (int commands, char** names, char*** words, const int* counts, const MPI_Info* infos, int root,
               MPI_Comm communicator, MPI_Comm* started, int* codes),
              (commands, names, words, counts, infos, root, communicator, started, codes)) {
  if (!adds_variables(root, communicator) || commands < 1 || infos == nullptr) {
    return runtime().Comm_spawn_multiple(commands, names, words, counts, infos, root, communicator, started, codes);
  }
  return without_window("MPI_Comm_spawn_multiple", [&] {
    std::vector<std::unique_ptr<SpawnInfo>> owners;
    std::vector<MPI_Info> with_variables;
    for (int i = 0; i < commands; ++i) {
      owners.push_back(std::make_unique<SpawnInfo>(infos[i]));
      with_variables.push_back(owners.back()->get());
    }
    return runtime().Comm_spawn_multiple(commands, names, words, counts, with_variables.data(), root, communicator,
                                         started, codes);
  });
}
