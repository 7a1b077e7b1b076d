// SPDX-License-Identifier: BSD-3-Clause
#include "tools/common/linkage.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <elf.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "pmpi/runtime/program_runtime.hpp"
#include "tools/common/child.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhatThen = "--runtime openmpi or --runtime mpich says which runtime it is for";
constexpr int kMostInterpreters = 5;  // the limit of Linux

Result<std::string> locate(const std::string& word) {
  if (word.find('/') != std::string::npos) {
    std::error_code failed;
    if (!fs::exists(word, failed))
      return cannot("there is no program {}; if it is seen on the nodes only: --runtime NAME --no-examine", word);
    if (!runnable(word)) return cannot("{} cannot be executed (is it a program? chmod +x)", word);
    return fs::absolute(word).lexically_normal().string();
  }
  std::string found = in_path(word);
  if (!found.empty()) return found;
  return cannot("there is no program {} in PATH{}", word,
                fs::exists(word) ? fmt::format("; the one in this folder is ./{}", word) : "");
}

bool is_python(const fs::path& path) {
  std::string name = path.filename().string();
  name.erase(std::ranges::find_if(name, [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; }), name.end());
  return name == "python" || name == "pypy";
}

bool begins_with(const std::string& path, std::string_view what) {
  std::ifstream file(path, std::ios::binary);
  std::string begin(what.size(), '\0');
  return fs::is_regular_file(path) && file.read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == what;
}

// Returns the words after #!, or none. `env` and `env -S` are replaced by the program that they find in PATH.
std::vector<std::string> interpreter_of(const std::string& script) {
  std::ifstream file(script, std::ios::binary);
  std::array<char, 256> begin{};  // Linux reads as many bytes
  file.read(begin.data(), begin.size());
  const std::string_view head(begin.data(), static_cast<std::size_t>(file.gcount()));
  if (!head.starts_with("#!")) return {};
  std::istringstream line(std::string(head.substr(2, head.find('\n') - 2)));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  if (words.empty() || fs::path(words[0]).filename() != "env") return words;
  const auto command = std::find_if(words.begin() + 1, words.end(), [](const std::string& word) {
    return !word.starts_with('-') && word.find('=') == std::string::npos;
  });
  return command == words.end() ? words : std::vector(command, words.end());
}

// Returns the extension module of mpi4py that this interpreter would import.
Result<std::string> find_mpi4py(const std::string& python) {
  // The module is found and not loaded, since loading it would load MPI. The mark distinguishes the line from other
  // output of the interpreter's start.
  static constexpr const char* kQuestion =
      "import importlib.util as u\n"
      "try: s = u.find_spec('mpi4py.MPI')\n"
      "except ImportError: s = None\n"
      "print('farside:' + (s.origin if s and s.origin else ''))";
  std::optional<std::string> origin;
  ChildRequest request;
  request.arguments = {python, "-c", kQuestion};
  request.environment.erase("LD_PRELOAD");
  request.silence_seconds = 60;
  request.on_line = [&](std::string_view line) {
    if (line.starts_with("farside:")) origin = line.substr(8);
  };
  const ChildEnd end = run_child(request);
  if (!origin) {
    return cannot("{} could not be asked for its mpi4py (exit status {}): {}; {}", python, end.code,
                  end.error_output.substr(0, end.error_output.find('\n')), kWhatThen);
  }
  if (origin->empty()) {
    return cannot(
        "{} has no mpi4py: install it for this interpreter, or name another one (python3-mpi4py of Debian belongs to "
        "/usr/bin/python3); if the script uses MPI by other means, {}",
        python, kWhatThen);
  }
  return *origin;
}

// Returns the file whose libraries decide.
Result<std::string> follow(const std::string& program) {
  std::string file = program;
  std::string chain = program;
  for (int depth = 0; depth < kMostInterpreters; ++depth) {
    if (is_python(file)) return find_mpi4py(file);
    if (begins_with(file, ELFMAG)) return file;
    const std::vector<std::string> words = interpreter_of(file);
    if (words.empty())
      return cannot("{} is neither a program for this machine nor a script that begins with #!", chain);
    Result<std::string> interpreter = locate(words[0]);
    if (!interpreter) return cannot("{}, the interpreter of {}: {}", words[0], chain, interpreter.error().text);
    file = interpreter.value();
    chain += " -> " + file;
  }
  return cannot("{}: too many interpreters", chain);
}

}  // namespace

bool runnable(const fs::path& path) {
  std::error_code failed;
  return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path, failed);
}

std::string in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin", ":")) {
    const fs::path candidate = fs::path(folder) / program;
    if (runnable(candidate)) return fs::absolute(candidate).lexically_normal().string();
  }
  return {};
}

std::vector<LoadedLibrary> loaded_libraries(const std::string& file) {
  std::vector<LoadedLibrary> result;
  ChildRequest request;
  request.arguments = {"ldd", file};
  request.environment.erase("LD_PRELOAD");
  // "libmpi.so.40 => /usr/lib/libmpi.so.40 (0x...)", "libmpi.so.20 => not found", "/lib64/ld-linux-x86-64.so.2 (0x...)"
  request.on_line = [&](std::string_view line) {
    line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
    const std::size_t arrow = line.find(" => ");
    const std::string_view path = arrow == std::string_view::npos ? line : line.substr(arrow + 4);
    const std::size_t end = path.rfind(" (0x");
    if (path.starts_with('/') && end != std::string_view::npos) {
      const fs::path found(path.substr(0, end));
      const std::string name =
          arrow == std::string_view::npos ? found.filename().string() : std::string(line.substr(0, arrow));
      result.push_back({name, found.lexically_normal().string()});
    } else if (path == "not found") {
      result.push_back({std::string(line.substr(0, arrow)), {}});
    }
  };
  run_child(request);
  return result;
}

bool comes_first(const std::string& library) {
  static constexpr std::array<std::string_view, 11> kNames = {
      "libasan.",    "libhwasan.",  "libtsan.",    "liblsan.",     "libubsan.",  "libclang_rt.",
      "libjemalloc", "libmimalloc", "librpmalloc", "libtbbmalloc", "libtcmalloc"};
  const std::string name = fs::path(library).filename().string();
  return std::ranges::any_of(kNames, [&](std::string_view one) { return name.starts_with(one); });
}

std::vector<MpiLibrary> mpi_libraries(const std::vector<LoadedLibrary>& loaded) {
  std::vector<MpiLibrary> result;
  for (const LoadedLibrary& library : loaded)
    if (const std::string_view runtime = pmpi::runtime_of(library.name); !runtime.empty())
      result.push_back({std::string(runtime), library.name, library.path});
  return result;
}

MpiLibrary mpi_behind(const std::string& library) {
  const auto found = mpi_libraries(loaded_libraries(library));
  return found.empty() ? MpiLibrary() : found.front();
}

Result<Linkage> find_linkage(const std::string& word) {
  Linkage result;
  Result<std::string> program = locate(word);
  if (!program) return program.error();
  result.program = program.value();
  Result<std::string> examined = follow(result.program);
  if (!examined) return examined.error();
  result.examined = examined.value();
  const std::vector<LoadedLibrary> loaded = loaded_libraries(result.examined);
  if (loaded.empty()) {
    return cannot(
        "{} is linked statically, or for another kind of machine (ldd finds no library of it): nothing can be "
        "preloaded into it, link it with shared libraries",
        result.examined);
  }
  result.mpi = mpi_libraries(loaded);
  for (const LoadedLibrary& library : loaded) {
    if (result.first.empty() && comes_first(library.name)) result.first = library.path;
    static constexpr std::string_view kBegin = "libfarside-", kEnd = ".so";
    const std::size_t end = library.name.find(kEnd);
    if (library.name.starts_with(kBegin) && end != std::string::npos)
      result.farside = library.name.substr(kBegin.size(), end - kBegin.size());
  }
  return result;
}

}  // namespace farside::tools
