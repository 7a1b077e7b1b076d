// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/runtime/runtime.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sstream>
#include <type_traits>
#include <vector>

#include "pmpi/runtime/program_runtime.hpp"
#include "transport/base/imported_call.hpp"
#include "transport/base/log.hpp"

namespace farside::pmpi {
namespace {

// The MPI library of this process, for dlsym(3); null if none is loaded. If Python has loaded the library with
// RTLD_LOCAL, the library is in no search order.
void* loaded_library() {
  std::string path;
  const auto look = [](dl_phdr_info* info, std::size_t, void* data) {
    const std::string_view file(info->dlpi_name);
    if (runtime_of(file.substr(file.rfind('/') + 1)) != kOwnRuntime) return 0;
    *static_cast<std::string*>(data) = file;
    return 1;
  };
  return dl_iterate_phdr(look, &path) != 0 ? dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD) : nullptr;
}

// A text that can be an argument of a template.
template <std::size_t kSize>
struct Name {
  // NOLINTNEXTLINE(google-explicit-constructor,cppcoreguidelines-avoid-c-arrays)
  constexpr Name(const char (&from)[kSize]) { std::ranges::copy(from, text.begin()); }
  std::array<char, kSize> text{};
};

template <Name kName, class Result, class... Args>
Result missing(Args... /*args*/) {
  log(LogLevel::kError, "{} has no {}, which this program calls", runtime_name(), kName.text.data());
  std::abort();
}

void* find(void* where, const char* name) {
  if (void* const found = dlsym(where, name)) return found;
  static void* const library = loaded_library();
  return library != nullptr ? dlsym(library, name) : nullptr;
}

// `where`: for calls that farside interposes, RTLD_NEXT; for others RTLD_DEFAULT, as the dynamic linker binds calls.
template <Name kName, class Result, class... Args>
void resolve(void* where, Result (*&function)(Args...)) {
  void* const found = find(where, kName.text.data());
  function = found != nullptr ? reinterpret_cast<Result (*)(Args...)>(found) : missing<kName, Result, Args...>;
}

// Says once that a tool is left out. `function` is the tool's.
void say_left_out(const void* function, const void* of_runtime) {
  Dl_info tool{}, own{};
  if (dladdr(function, &tool) == 0 || dladdr(of_runtime, &own) == 0 || tool.dli_fbase == own.dli_fbase) return;
  if (!Log::is_new("left out")) return;
  log(LogLevel::kWarn,
      "{} is behind farside and calls the MPI library around it, so it sees none of farside's calls; name it before "
      "farside in LD_PRELOAD, as `farside run` does",
      tool.dli_fname);
}

Runtime load() {
  find_behind("PMPI_Initialized");
  Runtime loaded{};
#define FARSIDE_CALL(name) resolve<"PMPI_" #name>(RTLD_NEXT, loaded.name);
#define FARSIDE_USED(name) resolve<"PMPI_" #name>(RTLD_DEFAULT, loaded.name);
#include "pmpi/runtime/calls.def"
  // A tool that is left out gets these three in the runtime's place.
  if (tools_behind.Init == nullptr) resolve<"MPI_Init">(RTLD_NEXT, loaded.Init);
  if (tools_behind.Init_thread == nullptr) resolve<"MPI_Init_thread">(RTLD_NEXT, loaded.Init_thread);
  if (tools_behind.Finalize == nullptr) resolve<"MPI_Finalize">(RTLD_NEXT, loaded.Finalize);
#if MPI_VERSION >= 4
  loaded.large_datatypes = find_behind_if_there("PMPI_Type_get_envelope_c") != nullptr &&
                           find_behind_if_there("PMPI_Type_get_contents_c") != nullptr;
#endif
  return loaded;
}

}  // namespace

constinit Runtime tools_behind{};

void* find_tool(const char* first, const char* original, std::initializer_list<const char*> called) {
  void* const found = dlsym(RTLD_NEXT, first);
  if (found == nullptr) return nullptr;
  void* const of_runtime = dlsym(RTLD_NEXT, original);
  if (found == of_runtime) return nullptr;
  for (const char* name : called) {
    void* const next = ImportedCall(found, name).original();
    if (next != nullptr && next != dlsym(RTLD_NEXT, name)) return found;
  }
  if (of_runtime != nullptr) say_left_out(found, of_runtime);
  return nullptr;
}

bool find_tools() {
  bool any = false;
  const auto look = [&any](const char* first, const char* original, auto& function) {
    if (function != nullptr) return;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_tool(first, original, {original}));
    any = any || function != nullptr;
  };
#define FARSIDE_CALL(name) look("MPI_" #name, "PMPI_" #name, tools_behind.name);
#include "pmpi/runtime/calls.def"
  return any;
}

// MPI_Get_library_version says "Open MPI v4.1.4, package: Debian OpenMPI, ..." or "MPICH Version:\t4.0.2\nMPICH ...".
std::string runtime_name() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (runtime().Get_library_version(text.data(), &length) != MPI_SUCCESS) return "an unknown MPI";
  std::istringstream words(std::string(text.data(), std::string_view(text.data()).find_first_of(",\n")));
  std::string name;
  for (std::string word; words >> word;) {
    if (word == "Version:") continue;
    const bool number = word.size() > 1 && word[0] == 'v' && word[1] >= '0' && word[1] <= '9';
    name += (name.empty() ? "" : " ") + (number ? word.substr(1) : word);
  }
  return name;
}

bool is_open_mpi() {
  if constexpr (kOwnRuntime != "mpi_abi") return kOwnRuntime == "openmpi";
  static const bool is = runtime_name().starts_with("Open MPI");
  return is;
}

int open_mpi_version() {
  static const int version = [] {
    constexpr std::string_view kPrefix = "Open MPI ";
    const std::string name = runtime_name();
    return name.starts_with(kPrefix) ? std::atoi(name.c_str() + kPrefix.size()) : 0;
  }();
  return version;
}

void* find_behind_if_there(const char* name) { return find(RTLD_NEXT, name); }

void* find_behind(const char* name) {
  if (void* const found = find_behind_if_there(name)) return found;
  log(LogLevel::kError, "no {} behind farside: preload the library, or link it before the MPI library", name);
  std::abort();
}

const Runtime& runtime() {
  static const Runtime loaded = load();
  return loaded;
}

std::string value_of(MPI_Info info, const char* key) {
  if (info == MPI_INFO_NULL) return {};
  int length = 0;
  int found = 0;
  runtime().Info_get_valuelen(info, key, &length, &found);
  if (found == 0) return {};
  std::vector<char> value(static_cast<std::size_t>(length) + 1);
  runtime().Info_get(info, key, length, value.data(), &found);
  return found != 0 ? std::string(value.data()) : std::string();
}

}  // namespace farside::pmpi
