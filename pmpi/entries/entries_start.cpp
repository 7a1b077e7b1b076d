// SPDX-License-Identifier: BSD-3-Clause
// Entry points: the start of MPI (MPI 4.0 section 11.2). Each call checks the program's runtime again, and looks again
// for tools behind farside, because the program may have loaded them after farside. Here is the library's version, too.
#include <string>

#include <fmt/format.h>

#include "pmpi/entries/entry.hpp"
#include "pmpi/runtime/program_runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/result.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/space/group.hpp"

namespace {

// Calls the runtime's start, and begins what it makes possible.
template <class Start>
int started(Start&& start) {
  const int code = start();
  if (code != MPI_SUCCESS) return code;
  // The first window tries again, and reports the error.
  (void)farside::without_bad_alloc([] { farside::pmpi::library().resources->world_begins(); });
  (void)farside::without_bad_alloc(farside::start_libfabric_between_nodes);
  return code;
}

}  // namespace

using namespace farside::pmpi;

// The version of farside, and that of the protocol between ranks: ranks with different ones make no windows together.
// For tools that look for it in a process (dlsym(3)), such as `farside doctor`. The text lives as long as the process.
extern "C" [[gnu::visibility("default")]] const char* farside_version();
const char* farside_version() {
  static const auto* const text =
      new std::string(fmt::format("{} (protocol {})", FARSIDE_VERSION, farside::Group::kProtocol));
  return text->c_str();
}

FARSIDE_ENTRY(Init, (int* count, char*** words), (count, words)) {
  refuse_other_runtime();
  if (find_tools()) return farside_Init(count, words);
  return started([&] { return runtime().Init(count, words); });
}

FARSIDE_ENTRY(Init_thread, (int* count, char*** words, int required, int* provided),
              (count, words, required, provided)) {
  refuse_other_runtime();
  if (find_tools()) return farside_Init_thread(count, words, required, provided);
  return started([&] { return runtime().Init_thread(count, words, required, provided); });
}
