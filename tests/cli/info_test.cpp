// SPDX-License-Identifier: BSD-3-Clause
// `farside info` names the cause: verbs, CMA and limits in made-up surroundings, and what tries things out.
#include "tools/info/info.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "tools/common/child.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::info_test {

using namespace farside::tools;

namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A /sys and a /dev of its own.
class Machine {
 public:
  Machine() {
    std::string path = (fs::temp_directory_path() / "farside-test.XXXXXX").string();
    REQUIRE(mkdtemp(path.data()) != nullptr);
    root_ = path;
    fs::permissions(root_, fs::perms::all);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { fs::remove_all(root_); }
  void write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << '\n';
  }
  void device(const std::string& port_state) {
    write("sys/class/infiniband/mlx5_0/ports/1/state", port_state);
    write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  }
  void nodes() {
    write("dev/infiniband/uverbs0", "");
    write("dev/infiniband/rdma_cm", "");
  }
  fs::path operator/(const std::string& name) const { return root_ / name; }
  VerbsReport verbs(const LibfabricVerbs& libfabric = {}) const {
    return find_verbs(libfabric, (root_ / "sys").string(), (root_ / "dev").string());
  }

 private:
  fs::path root_;
};

Limit limit_named(const std::string& name) {
  for (const Limit& limit : find_limits()) {
    if (limit.name == name) return limit;
  }
  FAIL("no limit " << name);
  return {};
}

}  // namespace

TEST_CASE("verbs are missing for the first cause in the way, from the device to libfabric") {
  Machine machine;
  CHECK(contains(machine.verbs().why, "no RDMA device: "));
  CHECK(contains(machine.verbs().why, "does not exist"));
  CHECK(contains(machine.verbs({false, false, ""}).why, "this libfabric is built without"));
  fs::create_directories(machine / "sys/class/infiniband");
  CHECK(contains(machine.verbs().why, "is empty"));
  machine.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  CHECK(contains(machine.verbs().why, "no verbs for it"));
  CHECK(contains(machine.verbs().advice, "modprobe ib_uverbs"));
  machine.device("4: ACTIVE");
  CHECK(contains(machine.verbs().why, "uverbs0: No such file"));
  CHECK(contains(machine.verbs().advice, "--device=/dev/infiniband"));
  machine.write("dev/infiniband/uverbs0", "");
  CHECK(contains(machine.verbs().why, "rdma_cm: No such file"));
  CHECK(contains(machine.verbs().advice, "rdma_ucm"));
  machine.nodes();
  CHECK(contains(machine.verbs({false, false, ""}).why, "this libfabric is built without"));
  CHECK(contains(machine.verbs({false, true, "tcp"}).why, "FI_PROVIDER='tcp'"));
  CHECK(contains(machine.verbs().why, "takes none of mlx5_0"));
  CHECK(contains(machine.verbs().advice, "fi_info -p verbs"));
  machine.device("1: DOWN");
  CHECK(contains(machine.verbs().why, "adapter mlx5_0: port 1 is "));
  const VerbsReport there = machine.verbs({true, true, ""});
  CHECK(there.available);
  CHECK(there.why.empty());
  CHECK(there.devices == std::vector<std::string>{"mlx5_0"});
}

TEST_CASE("a device that may not be opened is a matter of permission") {
  Machine machine;
  machine.device("4: ACTIVE");
  machine.nodes();
  fs::permissions(machine / "dev/infiniband/uverbs0", fs::perms::none);
  // root may open everything.
  const Attempt tried = attempt([&] {
    if (geteuid() == 0 &&
        (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)) {
      return std::string("cannot become another user");
    }
    return machine.verbs().why;
  });
  REQUIRE(tried.answered);
  CHECK(contains(tried.answer, "no permission for "));
  CHECK(contains(tried.answer, "uverbs0: Permission denied"));
}

TEST_CASE("CMA that is refused has a cause and an advice") {
  const std::string refused = "process_vm_readv of 8 bytes: Operation not permitted";
  const auto why = [&](const CmaLimits& limits) { return explain_cma(refused, limits).why; };
  CHECK_FALSE(explain_cma(refused, {}).possible);
  CHECK(contains(why({2, 0, true}), refused));
  CHECK(contains(why({2, 0, true}), "kernel.yama.ptrace_scope is 2"));
  CHECK(contains(explain_cma(refused, {2, 2, true}).advice, "ptrace_scope=1"));
  CHECK(contains(explain_cma(refused, {3, 0, true}).advice, "next boot"));
  CHECK(contains(why({1, 2, true}), "seccomp filter"));
  CHECK(contains(explain_cma(refused, {{}, 2, true}).advice, "SYS_PTRACE"));
  CHECK(contains(why({{}, 0, false}), "not dumpable"));
  CHECK(contains(why({0, 0, true}), "security module"));
  CHECK(contains(explain_cma("process_vm_readv: Function not implemented", {}).why, "CONFIG_CROSS_MEMORY_ATTACH"));
}

TEST_CASE("the surroundings are read where the kernel has them") {
  Machine machine;
  CHECK_FALSE(find_cma_limits((machine / "none").string()).ptrace_scope.has_value());
  machine.write("proc/sys/kernel/yama/ptrace_scope", "2");
  machine.write("proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1");
  const CmaLimits limits = find_cma_limits((machine / "proc").string());
  CHECK(limits.ptrace_scope == 2);
  CHECK(limits.seccomp == 2);
  CHECK(limits.dumpable);
}

TEST_CASE("both ways to an on-node peer's memory are open between the processes of a test") {
  // Else the tests of these routes would fail, too.
  CHECK(try_mapped().possible);
  CHECK(try_cma().possible);
}

TEST_CASE("limits are those of the process, with what to change") {
  const Attempt tried = attempt([] {
    const rlimit locked{8 << 20, 8 << 20}, files{256, 512}, size{1 << 30, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &locked);
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_FSIZE, &size);
    std::string all;
    for (const Limit& limit : find_limits()) {
      all += limit.name + "=" + limit_text(limit.value, limit.bytes) + (limit.enough ? "+" : "-") + limit.advice + "\n";
    }
    return all;
  });
  REQUIRE(tried.answered);
  CHECK(contains(tried.answer, "locked memory=8 MiB-8 MiB is all"));
  CHECK(contains(tried.answer, "raise it to 8 MiB only"));
  CHECK(contains(tried.answer, "descriptors=256-enough for some 384 connections at a time"));
  CHECK(contains(tried.answer, "file size=1 GiB-ulimit -f unlimited"));
  CHECK(limit_named("shared memory").value > 0);
}

TEST_CASE("amounts are written as people write them") {
  CHECK(limit_text(kNoLimit, true) == "unlimited");
  CHECK(limit_text(8 << 20, true) == "8 MiB");
  CHECK(limit_text(20000, false) == "20000");
  CHECK(limit_text(512, true) == "512");
  CHECK(limit_text(1536, true) == "1.5 KiB");
  CHECK(limit_text(std::uint64_t{150} << 30, true) == "150 GiB");
}

TEST_CASE("what is tried out may crash, hang or print: the answer says so") {
  CHECK(attempt([] { return std::string("yes"); }).answer == "yes");
  const Attempt empty = attempt([] { return std::string(); });
  CHECK(empty.answered);
  CHECK(empty.answer.empty());
  const Attempt crashed = attempt([]() -> std::string {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
    return "no";
  });
  CHECK_FALSE(crashed.answered);
  CHECK(contains(crashed.end, "signal 11"));
  const Attempt hung = attempt(
      []() -> std::string {
        for (;;) pause();
      },
      0.2);
  CHECK_FALSE(hung.answered);
  CHECK(contains(hung.end, "no output"));
  const Attempt left = attempt([]() -> std::string { _exit(3); });
  CHECK(contains(left.end, "exit status 3"));
  const std::string large(1 << 20, 'x');
  CHECK(attempt([&] { return large; }).answer == large);
}

TEST_CASE("the probe's choice is the choice") {
  const auto probe = [](const std::string& name, const std::string& asked) {
    return attempt([&] {
             Settings settings;
             settings.provider = asked;
             const Json of = probe_provider(name, settings);
             return std::string(of["chosen"] ? "chosen " : "") + (of["usable"] ? "usable " : "") +
                    of["why"].get<std::string>();
           })
        .answer;
  };
  CHECK(probe("tcp", "") == "chosen usable chosen: the first of farside's preferences that is there");
  CHECK(contains(probe("tcp", "tcp"), "chosen usable chosen: FARSIDE_PROVIDER names it"));
  CHECK(contains(probe("tcp", "nonsense"), "usable passed over: FARSIDE_PROVIDER names another"));
  CHECK(contains(probe("udp", ""), "refused: it has no connected endpoint (FI_EP_MSG)"));
  CHECK(contains(probe("tcp;ofi_rxm", ""), "refused: it has no connected endpoint (FI_EP_MSG)"));
  const Attempt none = attempt([] {
    Settings settings;
    settings.provider = "nonsense";
    return choose_provider(settings.provider, settings.device).error().text;
  });
  CHECK(contains(none.answer, "FARSIDE_PROVIDER='nonsense' cannot be used"));
  const Attempt nowhere = attempt([] {
    Settings settings;
    settings.device = "nowhere";
    return probe_provider("tcp", settings)["why"].get<std::string>();
  });
  CHECK(contains(nowhere.answer, "refused: provider tcp has no device nowhere; it has: "));
}

}  // namespace farside::info_test
