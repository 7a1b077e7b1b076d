// SPDX-License-Identifier: BSD-3-Clause
// Every FARSIDE_* variable: its default, what is documented, what is refused and how; unknown ones are warned about.
#include "transport/base/settings.hpp"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <spawn.h>
#include <string>
#include <string_view>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/base/files.hpp"

namespace farside::settings_test {

namespace {

std::vector<std::string> farside_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with("FARSIDE_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

// An environment without FARSIDE_ variables; afterwards everything is as it was.
class Environment {
 public:
  Environment() {
    for (const std::string& name : farside_variables()) {
      before_[name] = std::getenv(name.c_str());
      unsetenv(name.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const std::string& name : farside_variables()) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
    Log::set_level(LogLevel::kWarn);
  }
  void set(const char* name, const char* value) { setenv(name, value, 1); }

 private:
  std::map<std::string, std::string> before_;
};

// What `body` writes on stderr.
std::string on_stderr(const std::function<void()>& body) {
  const UniqueFd file(memfd_create("stderr", MFD_CLOEXEC));
  const UniqueFd before(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  dup2(file.get(), STDERR_FILENO);
  body();
  dup2(before.get(), STDERR_FILENO);
  std::string text(65536, '\0');
  const ssize_t bytes = pread(file.get(), text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return text;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool same(const Settings& a, const Settings& b) {
  return a.routes == b.routes && a.provider == b.provider && a.device == b.device && a.log == b.log &&
         a.stats == b.stats && a.trace == b.trace && a.sites == b.sites && a.check == b.check &&
         a.nic_atomics == b.nic_atomics && a.huge_pages == b.huge_pages && a.overcommit == b.overcommit &&
         a.numa == b.numa && a.connections == b.connections && a.peer_timeout == b.peer_timeout && a.hang == b.hang;
}

struct Documented {
  const char* value;
  std::function<void(Settings&)> effect;  // on the defaults
};

// Effects on one setting.
template <class T, class V>
std::function<void(Settings&)> sets(T Settings::*setting, V value) {
  return [=](Settings& settings) { settings.*setting = value; };
}
template <class... Kinds>
std::function<void(Settings&)> routes(Kinds... kinds) {
  return sets(&Settings::routes, static_cast<RouteSet>((bit(RouteKind::kSelf) | ... | bit(kinds))));
}

const std::map<std::string, std::vector<Documented>>& documented() {
  using enum RouteKind;
  using S = Settings;
  static const std::map<std::string, std::vector<Documented>> values = {
      {"FARSIDE_ROUTES",
       {{"mapped", routes(kMapped)},
        {"cma", routes(kCma)},
        {"fabric", routes(kFabric)},
        {"mapped,cma", routes(kMapped, kCma)},
        {"fabric,mapped", routes(kMapped, kFabric)},
        {"fabric,cma,mapped", routes(kMapped, kCma, kFabric)}}},
      {"FARSIDE_PROVIDER",
       {{"tcp;ofi_rxm", sets(&S::provider, "tcp;ofi_rxm")}, {"verbs", sets(&S::provider, "verbs")}}},
      {"FARSIDE_DEVICE", {{"mlx5_0", sets(&S::device, "mlx5_0")}}},
      {"FARSIDE_NIC_ATOMICS", {{"on", sets(&S::nic_atomics, true)}, {"off", sets(&S::nic_atomics, false)}}},
      {"FARSIDE_HUGE_PAGES", {{"off", sets(&S::huge_pages, false)}, {"transparent", sets(&S::huge_pages, true)}}},
      {"FARSIDE_OVERCOMMIT", {{"on", sets(&S::overcommit, true)}, {"off", sets(&S::overcommit, false)}}},
      {"FARSIDE_NUMA",
       {{"first_touch", sets(&S::numa, Numa::kFirstTouch)},
        {"bind", sets(&S::numa, Numa::kBind)},
        {"interleave", sets(&S::numa, Numa::kInterleave)}}},
      {"FARSIDE_CHECK",
       {{"off", sets(&S::check, Check::kOff)},
        {"warn", sets(&S::check, Check::kWarn)},
        {"on", sets(&S::check, Check::kOn)},
        {"strict", sets(&S::check, Check::kStrict)}}},
      {"FARSIDE_CONNECTIONS", {{"0", sets(&S::connections, 0U)}, {"1000000", sets(&S::connections, 1000000U)}}},
      {"FARSIDE_PEER_TIMEOUT", {{"0", sets(&S::peer_timeout, 0U)}, {"86400", sets(&S::peer_timeout, 86400U)}}},
      {"FARSIDE_HANG", {{"0", sets(&S::hang, 0U)}, {"86400", sets(&S::hang, 86400U)}}},
      {"FARSIDE_LOG",
       {{"error", sets(&S::log, LogLevel::kError)},
        {"warn", sets(&S::log, LogLevel::kWarn)},
        {"info", sets(&S::log, LogLevel::kInfo)},
        {"debug", sets(&S::log, LogLevel::kDebug)}}},
      {"FARSIDE_STATS", {{"/tmp/run 1/stats", sets(&S::stats, "/tmp/run 1/stats")}}},
      {"FARSIDE_TRACE", {{"/tmp/run 1/trace", sets(&S::trace, "/tmp/run 1/trace")}}},
      {"FARSIDE_SITES", {{"on", sets(&S::sites, true)}, {"off", sets(&S::sites, false)}}},
  };
  return values;
}

}  // namespace

TEST_CASE("an empty environment gives the defaults, without a word") {
  Environment environment;
  const std::string text = on_stderr([] {
    const Result<Settings> settings = read_settings();
    REQUIRE(settings.ok());
    CHECK(same(settings.value(), Settings{}));
  });
  CHECK(text.empty());
}

TEST_CASE("every setting takes its own default and means the same by it") {
  for (const Setting& setting : settings_table()) {
    INFO(setting.name);
    Environment environment;
    environment.set(setting.name, setting.default_value);
    const Result<Settings> settings = read_settings();
    REQUIRE(settings.ok());
    CHECK(same(settings.value(), Settings{}));
  }
}

TEST_CASE("every setting takes its documented values") {
  for (const Setting& setting : settings_table()) {
    INFO(setting.name);
    CHECK(std::string_view(setting.name).starts_with("FARSIDE_"));
    CHECK_FALSE(std::string_view(setting.allowed).empty());
    CHECK_FALSE(std::string_view(setting.help).empty());
    const auto found = documented().find(setting.name);
    REQUIRE(found != documented().end());  // a new setting needs a line above
    for (const Documented& one : found->second) {
      INFO(one.value);
      Environment environment;
      environment.set(setting.name, one.value);
      const Result<Settings> settings = read_settings();
      REQUIRE(settings.ok());
      Settings expected;
      one.effect(expected);
      CHECK(same(settings.value(), expected));
    }
  }
  CHECK(settings_table().size() == documented().size());
}

TEST_CASE("a bad value is an error that names the variable, the value and what is allowed") {
  const std::map<const char*, std::vector<const char*>> bad = {
      {"FARSIDE_ROUTES", {"", "mapped,", ",mapped", "Mapped", "mapped cma", "mapped, cma", "mappedd"}},
      {"FARSIDE_LOG", {"", "WARN", "warn ", "2"}},
      {"FARSIDE_CHECK", {"", "paranoid"}},
      {"FARSIDE_HUGE_PAGES", {"on"}},
      {"FARSIDE_NUMA", {"", "on", "bind:0", "first touch"}},
      {"FARSIDE_OVERCOMMIT", {"1"}},
      {"FARSIDE_HANG", {"86401", "60 s"}},
      {"FARSIDE_SITES", {"1"}},
      {"FARSIDE_PEER_TIMEOUT", {"", "-1", "86401", "1s"}},
  };
  for (const auto& [name, values] : bad) {
    for (const char* const value : values) {
      INFO(name << "='" << value << "'");
      Environment environment;
      environment.set(name, value);
      const Result<Settings> settings = read_settings();
      REQUIRE_FALSE(settings.ok());
      CHECK(settings.error().kind == ErrorKind::kBadSetting);
      CHECK(contains(settings.error().text, name));
      CHECK(contains(settings.error().text, fmt::format("'{}'", value)));
      for (const Setting& setting : settings_table()) {
        if (std::string_view(setting.name) == name) CHECK(contains(settings.error().text, setting.allowed));
      }
    }
  }
}

TEST_CASE("a variable that is no setting is warned about by name, and the nearest setting is named") {
  Environment environment;
  environment.set("FARSIDE_ROUTE", "mapped");
  environment.set("FARSIDE_", "1");
  CHECK(on_stderr([] { CHECK(read_settings().ok()); }).empty());
  const std::string text = on_stderr([] { warn_of_unknown_settings(); });
  CHECK(contains(text, "warning"));
  CHECK(contains(text, "variable FARSIDE_ROUTE "));
  CHECK(contains(text, "variable FARSIDE_ "));
  CHECK(contains(text, "is FARSIDE_ROUTES meant?"));
}

TEST_CASE("settings, variables of scripts and of others are not warned about") {
  Environment environment;
  environment.set("FARSIDE_ROUTES", "mapped");
  environment.set("FARSIDE_LIB", "x");
  environment.set("FARSIDE_TEST_BUILD", "x");
  environment.set("NOT_FARSIDE_ROUTE", "x");
  CHECK(on_stderr([] { warn_of_unknown_settings(); }).empty());
  unsetenv("NOT_FARSIDE_ROUTE");
}

TEST_CASE("FARSIDE_LOG decides what is said from then on, warnings of unknown variables included") {
  Environment environment;
  environment.set("FARSIDE_LOG", "error");
  environment.set("FARSIDE_TYPO", "x");
  CHECK(read_settings().ok());
  CHECK(on_stderr([] { warn_of_unknown_settings(); }).empty());
  CHECK(Log::enabled(LogLevel::kError));
  CHECK_FALSE(Log::enabled(LogLevel::kWarn));
  environment.set("FARSIDE_LOG", "debug");
  CHECK(read_settings().ok());
  CHECK(Log::enabled(LogLevel::kDebug));
  CHECK(on_stderr([] { log(LogLevel::kInfo, "{} and {}", 1, 2); }) == "farside: info: 1 and 2\n");
  Log::set_rank(3);
  CHECK(on_stderr([] { log(LogLevel::kError, "so"); }) == "farside[3]: error: so\n");
  Log::set_rank(-1);
}

TEST_CASE("a line of the log is one line, without commands to the terminal, whatever names it has") {
  const std::string text =
      on_stderr([] { log(LogLevel::kError, "{}", "a\x1b]0;b\x07\nfarside: c\xc2\x9bx\x7f\xc3\xa4"); });
  CHECK(text ==
        "farside: error: a?]0;b?"
        "?farside: c?x?\xc3\xa4\n");
}

// The program that the next test starts.
TEST_CASE("as another user", "[.]") {
  if (getauxval(AT_SECURE) == 0) return;  // a folder without such programs (mount option nosuid)
  const bool good = read_settings().ok();
  std::_Exit(good ? 0 : 1);  // a sanitizer cannot look for leaks in such a process
}

TEST_CASE("a program with raised privileges takes nothing from the environment") {
  if (geteuid() != 0) return;
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::string program = folder + "/program";
  std::filesystem::copy_file("/proc/self/exe", program);
  constexpr uid_t kNobody = 65534;
  REQUIRE(chown(program.c_str(), kNobody, kNobody) == 0);
  REQUIRE(chmod(program.c_str(), 04755) == 0);
  Environment environment;
  environment.set("FARSIDE_LOG", "a bad value");
  std::string name = "as another user";
  const std::array<char*, 3> words = {program.data(), name.data(), nullptr};
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, program.c_str(), nullptr, nullptr, words.data(), environ) == 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  for (const char* variable : {"PMIX_NAMESPACE", "PMIX_RANK"}) unsetenv(variable);
  std::filesystem::remove_all(folder);
}

}  // namespace farside::settings_test
