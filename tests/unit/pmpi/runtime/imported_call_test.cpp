// SPDX-License-Identifier: BSD-3-Clause
// Redirecting the calls of one library (support/foreign_user.c, beside this program), and no other library's calls.
#include "transport/base/imported_call.hpp"

#include <dlfcn.h>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

using farside::ImportedCall;

namespace {

unsigned (*forwarded_to)(void*) = nullptr;
unsigned more(void* worker) { return forwarded_to(worker) + 100; }

}  // namespace

TEST_CASE("the calls of one library are redirected, and led back") {
  const std::string folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // The linker has made the second library's table read-only.
  for (const char* name : {"libforeign-user.so", "libforeign-user-protected.so"}) {
    CAPTURE(name);
    void* const user = dlopen((folder + "/" + name).c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_DEEPBIND);
    REQUIRE(user != nullptr);
    const auto progress = reinterpret_cast<unsigned (*)()>(dlsym(user, "foreign_progress"));
    const auto other = reinterpret_cast<unsigned (*)(void*)>(dlsym(user, "ucp_worker_progress"));
    const auto worker = reinterpret_cast<void* (*)()>(dlsym(user, "foreign_worker"));
    REQUIRE((progress != nullptr && other != nullptr && worker != nullptr));
    // The function has not been called yet, so the first library's table does not point to it. (If the program has
    // another function of this name, as MPICH over UCX has, only a call shows that RTLD_DEEPBIND binds to this one.)
    if (dlsym(RTLD_DEFAULT, "ucp_worker_progress") != nullptr) CHECK(progress() == 4711);
    ImportedCall call(reinterpret_cast<const void*>(progress), "ucp_worker_progress");
    REQUIRE(call.original() == reinterpret_cast<void*>(other));
    forwarded_to = other;
    for (int round = 0; round < 2; ++round) {
      REQUIRE(call.redirect(reinterpret_cast<void*>(more)));
      CHECK(progress() == 4811);
      CHECK(other(worker()) == 4711);
      call.restore();
      CHECK(progress() == 4711);
    }
    dlclose(user);
  }
}

TEST_CASE("what a library does not import, or no library, has no calls") {
  ImportedCall none(reinterpret_cast<const void*>(&more), "no_such_function_anywhere");
  CHECK(none.original() == nullptr);
  CHECK_FALSE(none.redirect(reinterpret_cast<void*>(more)));
  const int on_the_stack = 0;
  CHECK(ImportedCall(&on_the_stack, "ucp_worker_progress").original() == nullptr);
}
