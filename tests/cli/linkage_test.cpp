// SPDX-License-Identifier: BSD-3-Clause
// Which MPI runtime programs are for, read from their files; and the words of command lines.
#include "tools/common/linkage.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tools/common/runtime.hpp"
#include "tools/common/text.hpp"

namespace farside::linkage_test {

using namespace farside::tools;

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string path = (fs::temp_directory_path() / "farside-test.XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0755) const {
    const std::string file = path_ / name;
    std::ofstream(file, std::ios::binary) << text;
    chmod(file.c_str(), mode);
    return file;
  }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// What the loader itself says it would load: "name => path (address)".
std::set<std::string> by_loader(const std::string& program) {
  std::set<std::string> paths;
  FILE* out = popen(fmt::format("LD_TRACE_LOADED_OBJECTS=1 '{}'", program).c_str(), "r");
  REQUIRE(out != nullptr);
  char line[4096];
  while (fgets(line, sizeof line, out) != nullptr) {
    const std::string text(line);
    const std::size_t arrow = text.find("=> /");
    if (arrow != std::string::npos) paths.insert(fs::canonical(text.substr(arrow + 3, text.find(" (") - arrow - 3)));
  }
  pclose(out);
  return paths;
}

const std::string kSelf = fs::read_symlink("/proc/self/exe");

}  // namespace

TEST_CASE("a program's libraries are those that the loader itself would load") {
  for (const std::string& program : {kSelf, std::string("/bin/sh"), std::string(FARSIDE_COMMAND)}) {
    INFO(program);
    std::set<std::string> found;
    for (const LoadedLibrary& library : loaded_libraries(program)) {
      INFO(library.name);
      CHECK_FALSE(library.path.empty());
      if (!library.name.starts_with("ld-linux")) found.insert(fs::canonical(library.path));
    }
    CHECK(found == by_loader(program));
    CHECK_FALSE(found.empty());
  }
}

TEST_CASE("what is no program for this kind of machine has no libraries") {
  const Folder folder;
  std::ifstream self(kSelf, std::ios::binary);
  std::string bytes(4096, '\0');
  self.read(bytes.data(), 4096);
  std::string other = bytes;
  other[18] = static_cast<char>(other[18] + 1);  // e_machine
  for (const std::string& file : {folder.write("empty", ""), folder.write("text", std::string(200, 'x')),
                                  folder.path().string(), (folder.path() / "nowhere").string(),
                                  folder.write("other", other), folder.write("cut", bytes.substr(0, 100))}) {
    INFO(file);
    CHECK(loaded_libraries(file).empty());
  }
  const Result<Linkage> linkage = find_linkage(folder.write("other", other));
  REQUIRE_FALSE(linkage.ok());
  CHECK(contains(linkage.error().text, "linked statically, or for another kind of machine"));
}

TEST_CASE("a program without MPI is linked to none, and farside's library for Open MPI to that") {
  const Result<Linkage> shell = find_linkage("/bin/sh");
  REQUIRE(shell.ok());
  CHECK(shell.value().mpi.empty());
  CHECK(shell.value().farside.empty());
  for (const std::string& name : runtime_names()) {
    const Runtime runtime = find_runtime(name, FARSIDE_LIBRARIES);
    if (runtime.library.empty()) continue;
    INFO(runtime.library);
    // That for MPICH takes the MPI library of the program, whatever its name is.
    CHECK(mpi_behind(runtime.library).runtime == (name == "openmpi" ? name : ""));
    CHECK(fs::exists(mpi_behind(runtime.library).path) == (name == "openmpi"));
  }
}

TEST_CASE("a library of MPI is known by its name") {
  const auto found =
      mpi_libraries({{"libmpich.so.12", ""}, {"libmpi.so.40", ""}, {"libmpi.so.12", ""}, {"libc.so.6", ""}});
  REQUIRE(found.size() == 3);
  CHECK(found[0].runtime == "mpich");
  CHECK(found[1].runtime == "openmpi");
  CHECK(found[2].runtime == "mpich");
}

TEST_CASE("scripts lead to their interpreters") {
  const Folder folder;
  for (const char* begin : {"#!/bin/sh\n", "#! /bin/sh -e\n", "#!/usr/bin/env sh\n", "#!/usr/bin/env -S A=1 sh -e\n"}) {
    INFO(begin);
    const Result<Linkage> linkage = find_linkage(folder.write("script", begin));
    REQUIRE(linkage.ok());
    CHECK(fs::canonical(linkage.value().examined) == fs::canonical("/bin/sh"));
  }
  const std::string inner = folder.write("inner", "#!/bin/sh\n");
  const Result<Linkage> nested = find_linkage(folder.write("outer", "#!" + inner + "\n"));
  REQUIRE(nested.ok());
  CHECK(fs::canonical(nested.value().examined) == fs::canonical("/bin/sh"));
}

TEST_CASE("what cannot be followed is an error that says what is in the way") {
  const Folder folder;
  const auto error = [](const std::string& word) {
    const Result<Linkage> linkage = find_linkage(word);
    REQUIRE_FALSE(linkage.ok());
    return linkage.error().text;
  };
  CHECK(contains(error("no-such-program"), "no program no-such-program in PATH"));
  CHECK(contains(error("./no/such"), "there is no program ./no/such"));
  CHECK(contains(error(folder.write("plain", "x", 0644)), "cannot be executed"));
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK(contains(error("plain"), "no program plain in PATH; the one in this folder is ./plain"));
  std::filesystem::current_path(here);
  CHECK(contains(error(folder.path().string()), "cannot be executed"));
  CHECK(contains(error(folder.write("text", "echo\n")), "neither a program for this machine nor a script"));
  CHECK(contains(error(folder.write("gone", "#!/no/such/sh\n")), "there is no program /no/such/sh"));
  const std::string loop = folder.path() / "loop";
  CHECK(contains(error(folder.write("loop", "#!" + loop + "\n")), "too many interpreters"));
}

TEST_CASE("python is asked where its mpi4py is") {
  const Folder folder;
  // An interpreter of ours: it answers as python would.
  const std::string with = folder.write("python3.9", "#!/bin/sh\necho noise\necho farside:" + kSelf + "\n");
  const Result<Linkage> linkage = find_linkage(with);
  REQUIRE(linkage.ok());
  CHECK(linkage.value().program == with);
  CHECK(linkage.value().examined == kSelf);
  const Result<Linkage> script = find_linkage(folder.write("script.py", "#!" + with + " -u\n"));
  REQUIRE(script.ok());
  CHECK(script.value().examined == kSelf);
  const Result<Linkage> without = find_linkage(folder.write("python", "#!/bin/sh\necho farside:\n"));
  REQUIRE_FALSE(without.ok());
  CHECK(contains(without.error().text, "has no mpi4py"));
  const Result<Linkage> broken = find_linkage(folder.write("python2", "#!/bin/sh\necho no module sys >&2; exit 3\n"));
  REQUIRE_FALSE(broken.ok());
  CHECK(contains(broken.error().text, "exit status 3"));
  CHECK(contains(broken.error().text, "no module sys"));
}

TEST_CASE("a quoted line is the same words for a shell") {
  const std::vector<std::string> words = {"printf", "%s\\n", "plain",       "a b",  "it's", "",
                                          "$HOME",  "*",     "tcp;ofi_rxm", "a\nb", "~",    "#x"};
  const std::string line = shell_line(words);
  CHECK(contains(line, "plain"));
  CHECK_FALSE(contains(line, "'plain'"));
  FILE* out = popen(line.c_str(), "r");
  REQUIRE(out != nullptr);
  std::string text;
  for (int c = fgetc(out); c != EOF; c = fgetc(out)) text.push_back(static_cast<char>(c));
  pclose(out);
  std::string expected;
  for (std::size_t i = 2; i < words.size(); ++i) expected += words[i] + "\n";
  CHECK(text == expected);
}

TEST_CASE("an LD_PRELOAD of the user's is kept in front of farside's library, older ones of farside's are not") {
  CHECK(preload_list("", "/l/libfarside-mpich.so") == "/l/libfarside-mpich.so");
  CHECK(preload_list("/a.so /b.so:/c.so", "/f.so") == "/a.so:/b.so:/c.so:/f.so");
  CHECK(preload_list("/old/libfarside-openmpi.so:/a.so", "/f.so") == "/a.so:/f.so");
  CHECK(preload_list("/a.so:/l/libmpi.so.40:/b.so", "/f.so") == "/a.so:/f.so:/l/libmpi.so.40:/b.so");
  CHECK(preload_list("/old/libfarside-openmpi.so", "").empty());
  CHECK(preload_list("/a.so:/usr/lib/libasan.so.8 libjemalloc.so", "/f.so") ==
        "/usr/lib/libasan.so.8:libjemalloc.so:/a.so:/f.so");
  CHECK(preload_list("/libasan-tools/a.so", "/f.so") == "/libasan-tools/a.so:/f.so");
  CHECK(preload_list("/a.so:libjemalloc.so.2", "/f.so", "/l/libasan.so.8") ==
        "/l/libasan.so.8:libjemalloc.so.2:/a.so:/f.so");
  CHECK(preload_list("/mine/libasan.so.6", "/f.so", "/l/libasan.so.8") == "/mine/libasan.so.6:/f.so");
}

}  // namespace farside::linkage_test
