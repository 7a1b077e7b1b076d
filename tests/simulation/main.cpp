// SPDX-License-Identifier: BSD-3-Clause
// Runs an MPI program on farside, many ranks in one process, deterministically by a seed (README.md).
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/host.hpp"
#include "tests/simulation/mpi/objects.hpp"
#include "tests/simulation/network/objects.hpp"

namespace simulation {
namespace {

struct Command {
  std::uint64_t seed = 1;
  int seeds = 1, seconds = 0;  // how many seeds, or for how long
  int ranks = 2, nodes = 1;
  int stops = 0;                     // a rank is stopped for a while, on average once in so many milliseconds; 0: none
  std::vector<std::string> program;  // with its arguments
};

constexpr const char* kUsage =
    "usage: simulation [--seed N] [--seeds N | --seconds N] [--ranks N] [--nodes N] [--stops N]\n"
    "                  PROGRAM [ARGUMENTS...]\n";

Command parse(int count, char** words) {
  Command command;
  int at = 1;
  for (; at + 1 < count && std::strncmp(words[at], "--", 2) == 0; at += 2) {
    const std::string_view name(words[at]), text(words[at + 1]);
    std::uint64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) at = count;
    if (name == "--seed")
      command.seed = value;
    else if (name == "--seeds")
      command.seeds = static_cast<int>(value);
    else if (name == "--seconds")
      command.seconds = static_cast<int>(value);
    else if (name == "--ranks")
      command.ranks = static_cast<int>(value);
    else if (name == "--nodes")
      command.nodes = static_cast<int>(value);
    else if (name == "--stops")
      command.stops = static_cast<int>(value);
    else
      at = count;
  }
  for (; at < count; ++at) command.program.emplace_back(words[at]);
  if (!command.program.empty() && command.ranks > 0 && command.nodes > 0) return command;
  std::fputs(kUsage, stderr);
  std::exit(2);
}

// The part of a shared object that is loaded: without its sections, most of which are for debuggers.
std::string read_loaded_part(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string bytes = text.str();
  Elf64_Ehdr header{};
  if (bytes.size() < sizeof header) host::fail(path + " is no program");
  std::memcpy(&header, bytes.data(), sizeof header);
  std::size_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    std::memcpy(&part, bytes.data() + header.e_phoff + static_cast<std::size_t>(i) * sizeof part, sizeof part);
    if (part.p_type == PT_LOAD) end = std::max<std::size_t>(end, part.p_offset + part.p_filesz);
  }
  header.e_shoff = 0;
  header.e_shnum = header.e_shstrndx = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.resize(end);
  return bytes;
}

int new_file(const std::string& contents) {
  const int fd = memfd_create("simulated", MFD_CLOEXEC);
  if (fd < 0 || write(fd, contents.data(), contents.size()) != static_cast<ssize_t>(contents.size()))
    host::fail("no memory for a file");
  return fd;
}

using Main = int (*)(int, char**);

// Each copy has its own variables. Its descriptor stays open, since the dynamic linker knows libraries by their paths.
Main load_copy(const std::string& bytes) {
  const int fd = new_file(bytes);
  void* const library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) host::fail(std::string("the program cannot be loaded: ") + dlerror());
  return reinterpret_cast<Main>(dlsym(library, "simulated_main"));
}

// Stops a rank for up to twenty milliseconds, and so on.
void stop_at_times(int every) {
  Random& random = scheduler->random();
  const auto within = [&random](Time time) {
    return scheduler->now() + static_cast<Time>(random.below(static_cast<std::uint64_t>(time)));
  };
  scheduler->at(within(2 * every * 1000 * kMicrosecond), [every, within] {
    Rank& rank = job.ranks[scheduler->random().below(job.ranks.size())];
    stop(rank);
    scheduler->at(within(20'000 * kMicrosecond), [&rank] { proceed(rank); });
    stop_at_times(every);
  });
}

void simulate(const Command& command, std::uint64_t seed) {
  for (char** each = environ; *each != nullptr; ++each)
    if (std::strncmp(*each, "FARSIDE_", 8) == 0) host::replay += std::string(*each) + " ";
  host::replay += "build/bin/tests/simulation --seed " + std::to_string(seed) + " --ranks " +
                  std::to_string(command.ranks) + " --nodes " + std::to_string(command.nodes) + " --stops " +
                  std::to_string(command.stops);
  for (const std::string& each : command.program) host::replay += " " + each;
  host::program = command.program[0];
  Options options;
  options.seed = seed;
  setenv("TEST_ROUTE", command.nodes > 1 ? "hosts" : "mapped", 1);  // as run_program
  scheduler = new Scheduler(options);
  job.nodes = command.nodes;
  for (int i = 0; i < command.ranks; ++i) {
    job.ranks.push_back({i, i * command.nodes / command.ranks});
    begin(job.ranks.back());
  }
  mpi::start();
  const std::string bytes = read_loaded_part(command.program[0]);
  std::vector<std::string> words = command.program;
  words.insert(words.end(), {"seed", std::to_string(seed & 0x7fffffff)});
  host::replace_counter();
  std::vector<Thread*> mains;
  for (Rank& rank : job.ranks) {
    rank.main = &scheduler->start(rank.index, "main", [&rank, words, entry = load_copy(bytes)] {
      std::vector<std::string> own = words;
      std::vector<char*> arguments;
      for (std::string& each : own) arguments.push_back(each.data());
      arguments.push_back(nullptr);
      rank.result = entry(static_cast<int>(own.size()), arguments.data());
      if (rank.result != 0) host::fail("main() has returned " + std::to_string(rank.result));
    });
    mains.push_back(rank.main);
  }
  if (command.stops > 0) stop_at_times(command.stops);
  scheduler->run(mains);
  mpi::check_that_all_is_free();
  using Number = unsigned long long;
  std::printf("seed %llu: %llu steps, %.6f s of virtual time, %llu packets, trace %016llx\n", Number{seed},
              Number{scheduler->steps()}, static_cast<double>(scheduler->now()) / 1e9,
              Number{network::network().packets}, Number{scheduler->trace()});
}

// Without random addresses, and with room for the thread-local storage of many copies of a library.
void prepare(char** words) {
  constexpr const char* kTunables = "glibc.rtld.optional_static_tls=65536";
  const char* const set = std::getenv("GLIBC_TUNABLES");
  if (set != nullptr && std::strcmp(set, kTunables) == 0) return;
  personality(ADDR_NO_RANDOMIZE);  // where it is refused, traces of two runs may differ
  setenv("GLIBC_TUNABLES", kTunables, 1);
  execv("/proc/self/exe", words);
  host::fail("the simulation cannot start itself again");
}

std::int64_t seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

int run(int count, char** words) {
  Command command = parse(count, words);
  prepare(words);
  if (command.seeds == 1 && command.seconds == 0) {
    simulate(command, command.seed);
    std::fflush(nullptr);
    return 0;
  }
  const std::int64_t end = seconds() + command.seconds;
  int done = 0;
  for (std::uint64_t seed = command.seed; command.seconds > 0 ? seconds() < end : done < command.seeds;
       ++seed, ++done) {
    const pid_t child = fork();
    if (child == 0) {
      simulate(command, seed);
      std::fflush(nullptr);
      quick_exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  std::printf("%d seeds passed\n", done);
  return 0;
}

}  // namespace
}  // namespace simulation

int main(int count, char** words) { return simulation::run(count, words); }
