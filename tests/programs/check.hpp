// SPDX-License-Identifier: BSD-3-Clause
// The common parts of the test programs: start and end of MPI, checks that report rank and values and then abort, the
// section of a rank at a timeout, and windows over either kind of memory. Plain MPI; nothing of farside.
//
//   int main(int argc, char** argv) {
//     check::Program program(argc, argv);
//     check::section("a put arrives");
//     check::Window window(program.memory(), 8 * sizeof(int), sizeof(int));
//     CHECK_MPI(MPI_Win_fence(0, window));
//     ...
//     CHECK_EQ(window.as<int>()[0], 42);
//   }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <execinfo.h>
#include <initializer_list>
#include <iomanip>
#include <new>
#include <random>
#include <signal.h>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <mpi.h>

namespace check {

// The memory of a window: the runtime's (MPI_Win_allocate), or the program's own (MPI_Win_create).
enum class Memory { kAllocate, kCreate };

struct State {
  int rank = -1;
  const char* section = "start";
};
inline State state;

inline int rank() {
  int value = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

inline int size() {
  int value = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  return value;
}

// Names the following part, for failure messages. The text must be a literal, because a signal handler reads it.
inline void section(const char* text) { state.section = text; }

// A part of a program: its name in failure messages, and its function.
template <class... Arguments>
struct Section {
  const char* text;  // a literal
  void (*run)(Arguments...);
  // The section of MPI 4.0 that any runtime must meet to pass, for `farside conform`; empty if it is not all of it.
  const char* standard = "";
};

// `farside conform` sets TEST_SECTION to the name of the only section to run, or to "?" for a list. Sections then leave
// out what the standard does not require, such as errors for mistakes.
inline bool conforming() { return std::getenv("TEST_SECTION") != nullptr; }
template <class Section>
bool chosen(const Section& section) {
  const char* const only = std::getenv("TEST_SECTION");
  if (only == nullptr) return true;
  if (std::string_view(only) != "?") return std::string_view(only) == section.text;
  if (section.standard[0] != '\0' && state.rank == 0) std::printf("%s %s\n", section.standard, section.text);
  return false;
}

// Runs the sections of an array one after the other, each with the same arguments.
template <class Sections, class... Arguments>
void run(const Sections& sections, const Arguments&... arguments) {
  for (const auto& each : sections) {
    if (!chosen(each)) continue;
    section(each.text);
    each.run(arguments...);
  }
}

template <class T>
std::string show(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_integral_v<T>) {
    out << +value;
  } else if constexpr (requires { out << value; }) {
    out << std::setprecision(21) << value;
  } else {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    for (std::size_t i = 0; i < sizeof(T); ++i) out << std::hex << std::setw(2) << std::setfill('0') << +bytes[i];
  }
  return out.str();
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  std::fprintf(stderr, "%s:%d: rank %d, in \"%s\": %s\n", file, line, state.rank, state.section, text.c_str());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

template <class A, class B>
void equal(const A& a, const B& b, const char* a_text, const char* b_text, const char* file, int line) {
  if (a == b) return;
  fail(file, line, std::string(a_text) + " is " + show(a) + ", but " + b_text + " is " + show(b));
}

inline std::string class_name(int error_class) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error_class, text.data(), &length);
  return std::to_string(error_class) + " (" + std::string(text.data(), static_cast<std::size_t>(length)) + ")";
}

// Returns a communicator of the ranks with this rank's host name. (That of MPI_COMM_TYPE_SHARED has one rank in MPICH 5
// over UCX.) Collective.
inline MPI_Comm node_communicator() {
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> own{};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<char> all(own.size() * static_cast<std::size_t>(size()));
  const int bytes = static_cast<int>(own.size());
  MPI_Allgather(own.data(), bytes, MPI_CHAR, all.data(), bytes, MPI_CHAR, MPI_COMM_WORLD);
  int first = 0;
  while (std::strcmp(own.data(), &all[own.size() * static_cast<std::size_t>(first)]) != 0) ++first;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, first, 0, &node);
  return node;
}

inline int class_of(int code) {
  int error_class = code;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  return error_class;
}

inline void mpi(int code, const char* call, const char* file, int line) {
  if (code != MPI_SUCCESS) fail(file, line, std::string(call) + " returned " + class_name(code));
}

// Checks that the call has failed with one of the given classes.
inline void refused(int code, std::initializer_list<int> classes, const char* call, const char* file, int line) {
  const int got = class_of(code);
  if (std::find(classes.begin(), classes.end(), got) != classes.end()) return;
  std::string wanted;
  for (int each : classes) wanted += (wanted.empty() ? "" : " or ") + class_name(each);
  fail(file, line, std::string(call) + " gave class " + class_name(got) + ", not " + wanted);
}

#define CHECK(condition) ((condition) ? void() : check::fail(__FILE__, __LINE__, "not true: " #condition))
#define CHECK_EQ(a, b) check::equal((a), (b), #a, #b, __FILE__, __LINE__)
#define CHECK_MPI(call) check::mpi((call), #call, __FILE__, __LINE__)
#define CHECK_REFUSED(call, ...) check::refused((call), {__VA_ARGS__}, #call, __FILE__, __LINE__)

// The original stderr, also while check::Stderr captures it (stderr.hpp).
inline int terminal = STDERR_FILENO;

// The runner sets the time limit in TEST_SECONDS. A rank that hangs then prints its section and the call stack of the
// thread that takes the signal, mostly the main thread.
extern "C" inline void check_out_of_time(int) {
  const auto say = [](const char* text) { (void)!write(terminal, text, std::strlen(text)); };
  char digits[] = "rank ???";
  for (int i = 0, value = state.rank; i < 3; ++i, value /= 10) digits[7 - i] = static_cast<char>('0' + value % 10);
  say(digits);
  say(": out of time in \"");
  say(state.section);
  say("\", in:\n");
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), terminal);
  _exit(124);
}

// The exit code of a program that cannot run here. run_program passes it on, and ctest counts the test as skipped.
constexpr int kSkipped = 77;

// MPI from start to end. The first argument may choose the memory of windows: allocate (the default) or create. Asks
// for a thread level, which the runtime need not grant.
class Program {
 public:
  Program(int& argc, char**& argv, int level = MPI_THREAD_SINGLE) {
    int provided = 0;
    MPI_Init_thread(&argc, &argv, level, &provided);
    state.rank = rank();
    if (const char* seconds = std::getenv("TEST_SECONDS")) {
      struct sigaction action {};
      action.sa_handler = check_out_of_time;
      sigaction(SIGALRM, &action, nullptr);
      alarm(static_cast<unsigned>(std::atoi(seconds)));
    }
    for (int i = 1; i < argc; ++i) arguments_.emplace_back(argv[i]);
  }
  ~Program() {
    section("MPI_Finalize");
    run_events_of_init();
    MPI_Finalize();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool has(std::string_view argument) const {
    return std::find(arguments_.begin(), arguments_.end(), argument) != arguments_.end();
  }
  // Returns the number after an argument, such as 7 for `seed 7`; `otherwise` if the argument is missing.
  int number(std::string_view argument, int otherwise) const {
    for (std::size_t i = 0; i + 1 < arguments_.size(); ++i)
      if (arguments_[i] == argument) return std::atoi(arguments_[i + 1].c_str());
    return otherwise;
  }
  // Returns the number after `seed`; if it is missing, a new number, the same on all ranks. Collective. Prints the
  // number.
  int seed() const {
    int drawn = has("seed") ? number("seed", 1) : static_cast<int>(std::random_device()() >> 1);
    MPI_Bcast(&drawn, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return drawn;
  }
  Memory memory() const { return has("create") ? Memory::kCreate : Memory::kAllocate; }

 private:
  // Open MPI 4.1 unloads its PMIx component before it ends the thread that may still have to run an event of MPI_Init
  // there, and that thread then crashes (tests/runtime-errors.md). A pause waits for its events.
  static void run_events_of_init() {
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
    for (const char* name : {"opal_progress_thread_pause", "opal_progress_thread_resume"}) {
      if (auto* const call = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, name))) call(nullptr);
    }
#endif
  }

  std::vector<std::string> arguments_;
};

// A window that is freed at the end of its block (collectively, like MPI_Win_free). Its memory starts as zeros.
class Window {
 public:
  Window(Memory memory, MPI_Aint bytes, int displacement_unit, MPI_Comm comm = MPI_COMM_WORLD,
         MPI_Info info = MPI_INFO_NULL)
      : bytes_(bytes) {
    if (memory == Memory::kAllocate) {
      CHECK_MPI(MPI_Win_allocate(bytes, displacement_unit, info, comm, &base_, &window_));
      if (bytes > 0) std::memset(base_, 0, static_cast<std::size_t>(bytes));
    } else {
      own_.resize(static_cast<std::size_t>(bytes) + 1);
      base_ = own_.data();
      CHECK_MPI(MPI_Win_create(base_, bytes, displacement_unit, info, comm, &window_));
    }
    // No rank may access memory that its owner has not cleared yet.
    CHECK_MPI(MPI_Barrier(comm));
  }
  ~Window() { CHECK_MPI(MPI_Win_free(&window_)); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  operator MPI_Win() const { return window_; }  // NOLINT(google-explicit-constructor)
  template <class T>
  T* as() const {
    return static_cast<T*>(base_);
  }
  MPI_Aint bytes() const { return bytes_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Aint bytes_ = 0;
  void* base_ = nullptr;
  std::vector<unsigned char> own_;
};

// The group of some ranks of MPI_COMM_WORLD, freed at the end of its block.
class Group {
 public:
  explicit Group(const std::vector<int>& ranks, MPI_Comm comm = MPI_COMM_WORLD) {
    MPI_Group world;
    CHECK_MPI(MPI_Comm_group(comm, &world));
    CHECK_MPI(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group_));
    CHECK_MPI(MPI_Group_free(&world));
  }
  ~Group() {
    if (group_ != MPI_GROUP_EMPTY) MPI_Group_free(&group_);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  operator MPI_Group() const { return group_; }  // NOLINT(google-explicit-constructor)

 private:
  MPI_Group group_ = MPI_GROUP_EMPTY;
};

// Returns the window's value of a hint; "" if it reports none.
inline std::string hint(MPI_Win window, const char* key) {
  MPI_Info info;
  CHECK_MPI(MPI_Win_get_info(window, &info));
  char text[MPI_MAX_INFO_VAL + 1] = "";
  int found = 0;
  CHECK_MPI(MPI_Info_get(info, key, MPI_MAX_INFO_VAL, text, &found));
  CHECK_MPI(MPI_Info_free(&info));
  return found ? text : "";
}

// Windows of more than 16 ranks, or more than 2 if some rank is not mapped, have a global lock for lock_all
// (epochs/lock.md). run_program passes the route.
inline bool lock_all_has_global_lock() {
  const char* given = std::getenv("TEST_ROUTE");
  const std::string route = given != nullptr ? given : "";
  return size() > (route == "fabric" || route == "hosts" ? 2 : 16);
}

inline std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) ranks[static_cast<std::size_t>(i)] = i;
  return ranks;
}

// Returns a byte that depends on its position: adjacent bytes, ranks and rounds differ.
inline unsigned char pattern(std::size_t index, int a, int b, int salt = 0) {
  return static_cast<unsigned char>((index * 7 + index / 251 + static_cast<std::size_t>(a) * 31 +
                                     static_cast<std::size_t>(b) * 101 + static_cast<std::size_t>(salt) * 13 + 1) &
                                    0xff);
}

}  // namespace check
