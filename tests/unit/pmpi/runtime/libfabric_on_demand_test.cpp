// SPDX-License-Identifier: BSD-3-Clause
// libfabric is not there until it is asked for, and changes no handlers when it comes.
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>

#include <catch2/catch.hpp>

#include "transport/fabric/endpoint.hpp"

namespace {

bool loaded() {
  void* const handle = ::dlopen("libfabric.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

void* handler_of(int signal) {
  struct sigaction now {};
  REQUIRE(::sigaction(signal, nullptr, &now) == 0);
  return reinterpret_cast<void*>(now.sa_handler);
}

}  // namespace

TEST_CASE("libfabric is loaded by its first call, and leaves the handlers of signals") {
  const bool by_runtime = loaded();  // Open MPI 5 is linked to it
  // Of what a launcher says, nothing means several nodes.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_NODES"}) ::unsetenv(name);
  farside::start_libfabric_between_nodes();
  ::setenv("PMI_SIZE", "4", 1);
  ::setenv("MPI_LOCALNRANKS", "4", 1);
  farside::start_libfabric_between_nodes();
  CHECK(loaded() == by_runtime);

  struct sigaction own {};
  own.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGTERM, &own, nullptr) == 0);
  void* const before[] = {handler_of(SIGTERM), handler_of(SIGINT), handler_of(SIGSEGV)};
  ::setenv("MPI_LOCALNRANKS", "2", 1);
  farside::start_libfabric_between_nodes();
  CHECK(loaded());
  CHECK(handler_of(SIGTERM) == before[0]);
  CHECK(handler_of(SIGINT) == before[1]);
  CHECK(handler_of(SIGSEGV) == before[2]);
}
