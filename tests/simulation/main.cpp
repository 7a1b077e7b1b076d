// SPDX-License-Identifier: BSD-3-Clause
// Runs an MPI program on farside, many ranks in one process, deterministically by a seed (README.md).
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/faults.hpp"
#include "tests/simulation/host.hpp"
#include "tests/simulation/mpi/objects.hpp"
#include "tests/simulation/network/objects.hpp"

namespace simulation {
namespace {

struct Command {
  std::uint64_t seed = 1;      // 0: any, which is printed
  int seeds = 1, seconds = 0;  // how many seeds, or for how long
  int any = 0;                 // draws the jobs, of up to so many ranks; each of `program` is one, with its arguments
  int ranks = 2, nodes = 1;
  int limit = 120;  // s of processor time for a job
  int shrink = 1;   // 0: does not look for a smaller job
  faults::Plan faults;
  std::vector<std::string> settings;  // NAME=VALUE
  std::vector<std::string> program;   // with its arguments
};

constexpr const char* kUsage =
    "usage: simulation [--seed N] [--seeds N | --seconds N] [--ranks N] [--nodes N]\n"
    "                  [--faults KIND:US,... [--most N]] [--limit SECONDS] [--shrink 0] PROGRAM [ARGUMENTS...]\n"
    "       simulation [--seed N] [--seeds N | --seconds N] --any RANKS 'PROGRAM [ARGUMENTS...]'...\n";

Command parse(int count, char** words) {
  Command command;
  const std::pair<std::string_view, int*> numbers[] = {{"--seeds", &command.seeds}, {"--seconds", &command.seconds},
                                                       {"--any", &command.any},     {"--ranks", &command.ranks},
                                                       {"--nodes", &command.nodes}, {"--most", &command.faults.most},
                                                       {"--limit", &command.limit}, {"--shrink", &command.shrink}};
  bool valid = true;
  int at = 1;
  for (; at + 1 < count && std::strncmp(words[at], "--", 2) == 0; at += 2) {
    const std::string_view name(words[at]), text(words[at + 1]);
    const auto number = [text](auto& value) {
      return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
    };
    const auto* const found = std::ranges::find(numbers, name, &std::pair<std::string_view, int*>::first);
    if (name == "--seed")
      valid &= number(command.seed);
    else if (name == "--faults")
      valid &= faults::read(text, command.faults);
    else
      valid &= found != std::end(numbers) && number(*found->second);
  }
  for (; at < count; ++at) command.program.emplace_back(words[at]);
  if (valid && !command.program.empty() && command.ranks > 0 && command.nodes > 0) return command;
  std::fputs(kUsage, stderr);
  std::exit(2);
}

std::string text_of(const Command& command) {
  std::string text;
  for (const std::string& each : command.settings) text += each + " ";
  text += "build/bin/tests/simulation --seed " + std::to_string(command.seed) + " --ranks " +
          std::to_string(command.ranks) + " --nodes " + std::to_string(command.nodes);
  if (!command.faults.means.empty()) text += " --faults " + command.faults.text();
  if (command.faults.most != INT_MAX) text += " --most " + std::to_string(command.faults.most);
  for (const std::string& each : command.program) text += " " + each;
  return text;
}

// One of the programs, half of the time the last one, on any number of ranks and nodes, with any settings that matter,
// and some kinds of faults.
Command draw_job(const Command& command) {
  Random random(command.seed);
  Command job = command;
  job.any = 0;
  const auto more = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(command.any) - 1)); };
  job.ranks = 2 + std::min(more(), more());  // few ranks take less time, and two have paths of their own
  job.nodes = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(std::min(job.ranks, 4))));
  const std::size_t programs = command.program.size();
  std::istringstream words(command.program[random.one_in(2) ? programs - 1 : random.below(programs)]);
  job.program = {std::istream_iterator<std::string>(words), {}};
  if (job.program.back() == "one") job.ranks = std::min(job.ranks, 3), job.nodes = std::min(job.nodes, job.ranks);
  const bool by_fabric = random.one_in(job.nodes == 1 ? 2 : 4);
  if (by_fabric) job.settings.emplace_back("FARSIDE_ROUTES=fabric");
  // On one node only windows on the program's own memory have a handler.
  if ((job.nodes == 1 && !by_fabric) || random.one_in(2)) job.program.emplace_back("create");
  if (random.one_in(2)) job.settings.push_back("FARSIDE_CONNECTIONS=" + std::to_string(1 + random.below(2)));
  constexpr const char* kKinds[] = {"stop", "death", "host", "break", "error", "refusal", "silence", "shortage"};
  constexpr int kMeans[] = {1'000, 20'000, 300'000};
  const bool survives = job.program.front().find("survivors") != std::string::npos;
  if (random.one_in(survives ? 2 : 4) == survives) {  // other programs end at the first error
    if (random.one_in(2)) job.faults.means["stop"] = kMeans[random.below(3)];
    if (survives) job.program.insert(job.program.end(), {"rounds", "100"});
    if (survives && random.one_in(2)) job.program.emplace_back("active");
    return job;
  }
  for (const char* const kind : kKinds)
    if (random.one_in(3)) job.faults.means[kind] = kMeans[random.below(3)];
  const auto leave_out = [&job](auto... kinds) { (job.faults.means.erase(kinds), ...); };
  // After a connection has broken, locks may wait for ever (epochs/lock.md): only survivors.cpp does without. Nor can
  // active target synchronization go on after a death.
  if (!survives) {
    leave_out("break", "silence", "shortage");
  } else if (random.one_in(2)) {
    job.program.emplace_back("active");
    leave_out("death", "host");
  } else if (std::ranges::any_of(job.faults.means, [](const auto& each) {
               return each.first == "break" || each.first == "silence" || each.first == "shortage";
             })) {
    job.program.emplace_back("unlocked");
  }
  return job;
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

// Of all runs of this process and its children.
struct Totals {
  Time time = 0;
  int faults = 0;
};
Totals* totals = nullptr;

[[noreturn]] void simulate(const Command& command) {
  for (char** each = environ; *each != nullptr; ++each)
    if (std::strncmp(*each, "FARSIDE_", 8) == 0) host::replay += std::string(*each) + " ";
  host::replay += text_of(command);
  for (const std::string& each : command.settings) putenv(strdup(each.c_str()));
  const auto limit = static_cast<rlim_t>(command.limit);
  const rlimit of_time{limit, limit + 10};
  setrlimit(RLIMIT_CPU, &of_time);
  const char* const routes = std::getenv("FARSIDE_ROUTES");
  const bool by_fabric = routes != nullptr && std::strcmp(routes, "fabric") == 0;
  host::program = command.program[0];
  Options options;
  options.seed = command.seed;
  setenv("TEST_ROUTE", by_fabric ? "fabric" : command.nodes > 1 ? "hosts" : "mapped", 1);  // as run_program
  scheduler = new Scheduler(options);
  job.nodes = command.nodes;
  for (int i = 0; i < command.ranks; ++i) {
    job.ranks.push_back({i, i * command.nodes / command.ranks});
    begin(job.ranks.back());
  }
  mpi::start();
  const std::string bytes = read_loaded_part(command.program[0]);
  std::vector<std::string> words = command.program;
  words.insert(words.end(), {"seed", std::to_string(command.seed & 0x7fffffff)});
  host::begin_run();
  std::vector<Thread*> mains;
  for (Rank& rank : job.ranks) {
    rank.main = &scheduler->start(rank.index, "main", [&rank, words, entry = load_copy(bytes)] {
      std::vector<std::string> own = words;
      std::vector<char*> arguments;
      for (std::string& each : own) arguments.push_back(each.data());
      arguments.push_back(nullptr);
      rank.result = entry(static_cast<int>(own.size()), arguments.data());
      if (rank.result != 0) faults::end_job("main() has returned " + std::to_string(rank.result));
    });
    mains.push_back(rank.main);
  }
  faults::start(command.faults);
  scheduler->run(mains);
  mpi::check_that_all_is_free();
  faults::accept(std::to_string(scheduler->steps()) + " steps, " + std::to_string(network::network().packets) +
                 " packets");
}

// Without random addresses, with room for the thread-local storage of many copies of a library, and with memory that is
// overwritten when it is allocated and freed. farside goes over the environment and the descriptors, and asks how many
// it may have: if these differed, traces would.
void prepare(char** words) {
  constexpr const char* kTunables = "glibc.rtld.optional_static_tls=65536:glibc.malloc.perturb=165";
  const char* const set = std::getenv("GLIBC_TUNABLES");
  if (set != nullptr && std::strcmp(set, kTunables) == 0) return;
  personality(ADDR_NO_RANDOMIZE);  // where it is refused, traces of two runs may differ
  setenv("GLIBC_TUNABLES", kTunables, 1);
  constexpr std::string_view kKept[] = {"FARSIDE_", "TEST_", "MUTATION=", "GLIBC_TUNABLES=", "LD_LIBRARY_PATH="};
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each)
    if (std::ranges::any_of(kKept, [&](std::string_view name) { return std::string_view(*each).starts_with(name); }))
      environment.push_back(*each);
  environment.push_back(nullptr);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  constexpr rlimit kDescriptors{4096, 4096};
  setrlimit(RLIMIT_NOFILE, &kDescriptors);
  execve("/proc/self/exe", words, environment.data());
  host::fail("the simulation cannot start itself again");
}

std::int64_t seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Simulates in a child. Returns whether it succeeds.
bool succeeds(const Command& command, bool quiet) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (quiet && std::freopen("/dev/null", "w", stdout) != nullptr) dup2(STDOUT_FILENO, STDERR_FILENO);
    simulate(command);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

// Prints a smaller job that fails: fewer faults, ranks, nodes, and operations (numbers among the arguments).
void shrink(Command failed) {
  constexpr std::uint64_t kSeeds = 20;
  const auto try_smaller = [&](const auto& change) {
    Command smaller = failed;
    change(smaller);
    for (const std::uint64_t end = smaller.seed + kSeeds; smaller.seed < end; ++smaller.seed) {
      if (succeeds(smaller, true)) continue;
      failed = smaller;
      return true;
    }
    return false;
  };
  while (failed.ranks > 2 && try_smaller([](Command& command) {
           --command.ranks;
           command.nodes = std::min(command.nodes, command.ranks);
         })) {
  }
  while (failed.nodes > 1 && try_smaller([](Command& command) { --command.nodes; })) {
  }
  for (std::size_t i = 1; i < failed.program.size(); ++i) {
    while (std::atoi(failed.program[i].c_str()) > 1 && try_smaller([i](Command& command) {
             command.program[i] = std::to_string(std::atoi(command.program[i].c_str()) / 2);
           })) {
    }
  }
  for (const auto& [kind, mean] : faults::Plan(failed.faults).means)
    try_smaller([&kind = kind](Command& command) { command.faults.means.erase(kind); });
  for (failed.faults.most = 0; !failed.faults.means.empty() && succeeds(failed, true) && failed.faults.most < 1000;)
    ++failed.faults.most;
  if (failed.faults.means.empty()) failed.faults.most = INT_MAX;
  std::fprintf(stderr, "simulation: a small job that fails: %s\n", text_of(failed).c_str());
}

int run(int count, char** words) {
  Command command = parse(count, words);
  prepare(words);
  constexpr int kShared = MAP_SHARED | MAP_ANONYMOUS;
  totals = static_cast<Totals*>(mmap(nullptr, sizeof *totals, PROT_READ | PROT_WRITE, kShared, -1, 0));
  if (command.seeds == 1 && command.seconds == 0) simulate(command.any > 0 ? draw_job(command) : command);
  if (command.seed == 0) {
    command.seed = std::random_device()();
    std::printf("the first seed is %llu\n", static_cast<unsigned long long>(command.seed));
  }
  const std::int64_t end = seconds() + command.seconds;
  int done = 0;
  for (; command.seconds > 0 ? seconds() < end : done < command.seeds; ++command.seed, ++done) {
    const Command job = command.any > 0 ? draw_job(command) : command;
    if (succeeds(job, false)) continue;
    if (command.shrink != 0) shrink(job);
    return 1;
  }
  std::printf("%d seeds passed, %.1f s of virtual time, %d faults\n", done, static_cast<double>(totals->time) / 1e9,
              totals->faults);
  return 0;
}

}  // namespace

void count_run() {
  totals->time += scheduler->now();
  totals->faults += faults::count();
}

}  // namespace simulation

int main(int count, char** words) { return simulation::run(count, words); }
