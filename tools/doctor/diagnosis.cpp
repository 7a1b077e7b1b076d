// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/bench/driver.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/info/info.hpp"

namespace farside::tools {
namespace {

// ---- groups of ranks ----

// Ranks with the same text, which is not empty, in the order of the lowest rank.
struct Group {
  std::string text;
  std::vector<int> ranks;
};
std::vector<Group> groups(const Json& ranks, const std::function<std::string(const Json&)>& text_for) {
  std::vector<Group> all;
  for (const Json& rank : ranks) {
    const std::string text = text_for(rank);
    if (text.empty()) continue;
    auto group = std::ranges::find(all, text, &Group::text);
    if (group == all.end()) group = all.insert(all.end(), {text, {}});
    group->ranks.push_back(rank.at("rank"));
  }
  return all;
}

// ---- the checks, each of which adds its causes ----

class Causes {
 public:
  explicit Causes(const Json& examination) : examination_(examination) {}

  template <class... Args>
  void fail(const char* check, std::string advice, fmt::format_string<Args...> what, Args&&... args) {
    add("failure", check, fmt::format(what, std::forward<Args>(args)...), std::move(advice));
  }
  template <class... Args>
  void warn(const char* check, std::string advice, fmt::format_string<Args...> what, Args&&... args) {
    add("warning", check, fmt::format(what, std::forward<Args>(args)...), std::move(advice));
  }
  const Json& of() const { return examination_; }
  const Json& ranks() const { return part_of(examination_, "ranks"); }
  std::string at(const std::vector<int>& some) const { return places(examination_, some); }

  Json sorted() {
    std::stable_sort(all_.begin(), all_.end(),
                     [](const Json& a, const Json& b) { return a["severity"] < b["severity"]; });  // failure < warning
    return all_;
  }

 private:
  void add(const char* severity, const char* check, std::string what, std::string advice) {
    // A setting of the user that cannot be used is one cause, whichever checks meet it.
    for (const std::string name : {"FARSIDE_PROVIDER", "FARSIDE_DEVICE"}) {
      const std::size_t at = what.find(name + "='");
      if (at == std::string::npos) continue;
      what = what.substr(at, what.find(") (", at) - at);
      advice = fmt::format("unset {}, or set it to one that farside info shows", name);
      severity = "failure", check = "settings";
      if (std::ranges::any_of(all_, [&](const Json& one) { return one["what"] == what; })) return;
    }
    all_.push_back({{"severity", severity}, {"check", check}, {"what", what}, {"advice", advice}});
  }
  const Json& examination_;
  Json all_ = Json::array();
};

// The ranks do not see each other: the launcher belongs to another runtime.
void check_launch(Causes& causes) {
  const Json& ranks = causes.ranks();
  if (ranks.empty()) return;
  const auto launched = ranks[0].value("launched", std::size_t{1});
  if (launched <= ranks.size()) return;
  causes.fail("launch",
              "start the ranks by the launcher of that runtime, or choose by --runtime (Slurm: srun --mpi=list)",
              "the launcher has started {} ranks, of which {} sees only {}: it is not the launcher of that runtime",
              launched, text_of(ranks[0], "mpi"), ranks.size());
}

std::string why_not_loaded(const Json& rank) {
  const std::string preload = text_of(rank, "preload");
  if (!text_of(rank, "farside").empty()) return {};
  if (preload.empty()) return "LD_PRELOAD does not name it there";
  if (!rank.value("preload_exists", false)) return fmt::format("{}, which LD_PRELOAD names, is not there", preload);
  return fmt::format("the dynamic loader has refused {}", preload);
}

std::string advice_for_loading(const std::string& why) {
  if (why.starts_with("LD_PRELOAD")) return "have the launcher pass LD_PRELOAD on to all hosts (mpirun -x LD_PRELOAD)";
  if (why.ends_with("is not there")) return "install farside on all hosts, at the same path or in a shared file system";
  return "look there at the output of ldd and file for it: another architecture, a library that is missing, or an "
         "empty file";
}

void check_library(Causes& causes) {
  for (const Group& group : groups(causes.ranks(), why_not_loaded))
    causes.fail("library", advice_for_loading(group.text), "farside is not loaded on {}: {}", causes.at(group.ranks),
                group.text);
}

// "0.1.0 on a (rank 0), 0.2.0 on b (rank 1)"; empty if all ranks have the same.
std::string differences(Causes& causes, const std::function<std::string(const Json&)>& text_for) {
  const std::vector<Group> all = groups(causes.ranks(), text_for);
  if (all.size() < 2) return {};
  std::vector<std::string> texts;
  for (const Group& group : all) texts.push_back(fmt::format("{} on {}", group.text, causes.at(group.ranks)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void check_versions(Causes& causes) {
  const auto compare = [&](const char* key, const char* check, const char* advice, const char* what) {
    const std::string texts = differences(causes, [key](const Json& rank) { return text_of(rank, key); });
    if (!texts.empty()) causes.fail(check, advice, "{}: {}", what, texts);
  };
  constexpr const char* kOneVersion = "install one version on all hosts";
  compare("farside", "version", kOneVersion, "the ranks load different versions of farside");
  compare("peers", "version", kOneVersion, "the hosts have different versions of farside's tools");
  compare("mpi", "mpi", "load the same MPI on all hosts", "the ranks run different MPI libraries");
}

void check_settings(Causes& causes) {
  for (const Group& group : groups(causes.ranks(), [](const Json& rank) { return text_of(rank, "bad_setting"); }))
    causes.fail("settings", "correct the value", "on {}: {}", causes.at(group.ranks), group.text);
  for (const char* name : {"FARSIDE_ROUTES", "FARSIDE_PROVIDER"}) {
    const auto value = [name](const Json& rank) {
      const auto set = part_of(rank, "settings").find(name);
      return set == part_of(rank, "settings").end() ? std::string("unset") : set->get<std::string>();
    };
    if (const std::string texts = differences(causes, value); !texts.empty())
      causes.fail("settings", "give all ranks the same value", "{} must agree on all ranks, and is {}", name, texts);
  }
  const auto unknown = [](const Json& rank) {
    return fmt::format("{}", fmt::join(part_of(rank, "unknown_settings").get<std::vector<std::string>>(), ", "));
  };
  for (const Group& group : groups(causes.ranks(), unknown))
    causes.warn("settings", "farside --help lists the settings", "{} on {}: no setting of farside, and ignored",
                group.text, causes.at(group.ranks));
}

void check_strict(Causes& causes) {
  const auto obstacle = [](const Json& rank) { return text_of(rank, "sees_no_early_loads"); };
  for (const Group& group : groups(causes.ranks(), obstacle)) {
    const std::size_t end = group.text.find("; ");
    causes.warn("strict", group.text.substr(end + 2), "FARSIDE_CHECK=strict sees no early loads of results on {}: {}",
                causes.at(group.ranks), group.text.substr(0, end));
  }
}

// The obstacle to a route has the same remedy on many ranks, and names addresses and processes of one of them.
void check_route(Causes& causes, const char* name) {
  const auto remedy = [name](const Json& rank) {
    const Json* route = route_of(rank, name);
    if (route == nullptr || route->at("possible").get<bool>() || !route->at("allowed").get<bool>())
      return std::string();
    return text_of(*route, "advice");
  };
  for (const Group& group : groups(causes.ranks(), remedy)) {
    const std::string why = text_of(*route_of(causes.ranks()[static_cast<std::size_t>(group.ranks[0])], name), "why");
    if (name == std::string_view("mapped")) {
      causes.fail(name, group.text, "no shared memory for windows on {}: {}", causes.at(group.ranks), why);
    } else {
      causes.warn(name, group.text,
                  "no process_vm_readv and process_vm_writev (CMA) on {}, so windows of MPI_Win_create use libfabric "
                  "inside the node: {}",
                  causes.at(group.ranks), why);
    }
  }
}

// The reason of the last provider, which asks least of the hosts.
std::string last_reason(const Json& choice) {
  const auto reasons = choice.at("why_not").get<std::vector<std::string>>();
  if (reasons.empty()) return "no provider";
  const std::string provider = reasons.back().substr(0, reasons.back().find(": "));
  return *std::ranges::find_if(reasons, [&](const std::string& text) { return text.starts_with(provider + ": "); });
}

void check_between(Causes& causes) {
  const int nodes = node_count(causes.of());
  if (nodes > 1 && !allows_fabric(causes.ranks()[0])) {
    causes.fail("between", "unset FARSIDE_ROUTES, or add fabric to it",
                "no route between {} and {}{}: FARSIDE_ROUTES does not allow libfabric, the only route between hosts",
                node_name(causes.of(), 0), node_name(causes.of(), 1),
                nodes > 2 ? fmt::format(", nor the other {} hosts", nodes - 2) : "");
    return;
  }
  const auto between = causes.of().find("between");
  if (between == causes.of().end() || between->is_null() || between->at("all").at("provider") != "") return;
  const std::string advice =
      "look at the firewall, and which interface the provider takes (FI_TCP_IFACE, FARSIDE_DEVICE); farside info on "
      "these hosts shows the providers";
  std::vector<const Json*> apart;
  for (const Json& pair : between->at("pairs"))
    if (pair.at("provider") == "") apart.push_back(&pair);
  if (nodes < 2) {
    causes.warn("between", advice, "libfabric has no provider for farside, which windows between hosts need: {}",
                last_reason(between->at("all")));
  } else if (apart.empty()) {
    causes.fail("between", advice, "no provider that works between all hosts: {}", last_reason(between->at("all")));
  } else {
    const std::size_t pairs = (apart.size() + 1) / 2;  // both directions
    causes.fail("between", advice, "no route between {} and {}{}: {}", (*apart[0])["from"].get<std::string>(),
                (*apart[0])["to"].get<std::string>(),
                pairs > 1 ? fmt::format(" and {} more pairs of hosts", pairs - 1) : "", last_reason(*apart[0]));
  }
}

void check_ended(Causes& causes) {
  const auto ended = causes.of().find("ended");
  if (ended == causes.of().end() || ended->is_null()) {
    if (causes.of().contains("done") && part_of(causes.of(), "ranks").empty()) {
      causes.fail("output", "run it again; the facts of the ranks come through the launcher, on stdout",
                  "the ranks have come to their end, but the launcher has lost what they printed");
    }
    return;
  }
  causes.fail("ended", "the tables show what was found before; FARSIDE_LOG=info shows what the ranks print",
              "the ranks have not come to the end of the step '{}': {}", text_of(*ended, "step"),
              text_of(*ended, "reason"));
}

void check_windows(Causes& causes) {
  // By window, since the ranks of one window usually have the same trouble.
  const auto what = [](const Json& window) {
    const std::string trouble = text_of(window, "trouble");
    if (trouble.empty()) return trouble;
    return fmt::format("a window of {} {} (route {}): {}", text_of(window, "call"),
                       text_of(window, "among") == "node" ? "inside the node" : "of all ranks",
                       text_of(window, "wanted"), trouble);
  };
  for (const Group& group : groups(part_of(causes.of(), "windows"), what))
    causes.fail("windows", "FARSIDE_LOG=info shows what the ranks print; please report it (farside doctor --report)",
                "{} ({})", group.text, causes.at(group.ranks));
  for (const Json& link : part_of(causes.of(), "links")) {
    if (text_of(link, "trouble").empty()) continue;
    causes.fail("links", "FARSIDE_LOG=info shows what the ranks print; please report it (farside doctor --report)",
                "puts from {} to {}: {}", node_name(causes.of(), link["from"]), node_name(causes.of(), link["to"]),
                text_of(link, "trouble"));
  }
}

// Only adapters need locked memory. Without one, only a limit of 0 is worth a line, which no system has by default.
void check_limits(Causes& causes) {
  const auto locked = [&](const Json& rank) {
    const Json* limit = limit_of(rank, "locked memory");
    if (limit == nullptr || limit->at("value").is_null()) return std::string();
    const Json* facts = host_of(causes.of(), rank.at("host"));
    const bool adapter = facts != nullptr && !facts->at("adapters").empty();
    const std::uint64_t value = limit->at("value");
    return value == 0 || (adapter && value < kLittleLockedMemory) ? limit_text(value, true) : std::string();
  };
  for (const Group& group : groups(causes.ranks(), locked)) {
    causes.warn(
        "locked memory",
        "ulimit -l unlimited where the ranks start; for good: '* - memlock unlimited' in "
        "/etc/security/limits.conf, under Slurm LimitMEMLOCK=infinity in the unit of slurmd",
        "locked memory is limited to {} on {}: too little for windows over an RDMA adapter, so farside takes TCP",
        group.text, causes.at(group.ranks));
  }
  for (const char* name : {"shared memory", "file size", "address space", "descriptors", "/dev/shm"}) {
    std::string advice;
    const auto little = [&](const Json& rank) {
      const Json* limit = limit_of(rank, name);
      if (limit == nullptr || limit->at("enough").get<bool>()) return std::string();
      if (advice.empty()) advice = limit->at("advice");
      return limit_text(*limit);
    };
    for (const Group& group : groups(causes.ranks(), little))
      causes.warn("limits", advice, "{}: {} on {}", name, group.text, causes.at(group.ranks));
  }
}

// An adapter that is there and not taken; and versions of libfabric that differ.
void check_providers(Causes& causes) {
  const auto between = causes.of().find("between");
  if (between == causes.of().end() || between->is_null()) return;
  std::set<std::string> versions;
  for (const Json& host : between->at("hosts")) versions.insert(host.at("libfabric"));
  if (versions.size() > 1)
    causes.warn("libfabric", "install one version on all hosts", "the hosts have different versions of libfabric: {}",
                fmt::join(versions, ", "));
  const std::string chosen = between->at("all").at("provider");
  if (chosen.empty()) return;
  for (const Json& why : between->at("all").at("why_not")) {
    const std::string text = why;
    const auto is_meant = [&](const Json& adapter) {  // emulated ones are taken only by name
      return text.find(fmt::format("adapter {} is emulated", text_of(adapter, "adapter"))) == std::string::npos;
    };
    const auto names_adapter = [&](const Json& host) {
      return text.find(text_of(host, "host")) != std::string::npos &&
             std::ranges::any_of(host.at("adapters"), is_meant);
    };
    if (std::ranges::none_of(between->at("hosts"), names_adapter)) continue;
    causes.warn("adapter", "correct that, or set FARSIDE_PROVIDER=tcp to say that it is meant so",
                "RDMA adapters are there, and the ranks take {}: not {}", chosen, text);
    return;
  }
}

// A link far from the others. Fewer links have no meaningful median.
constexpr std::size_t kLinksToCompare = 4;
constexpr double kFarFromMedian = 5;
void check_links(Causes& causes) {
  std::vector<double> latencies, rates;
  for (const Json& link : part_of(causes.of(), "links")) {
    if (!text_of(link, "trouble").empty()) continue;
    latencies.push_back(link.at("latency_us"));
    rates.push_back(link.at("megabytes_per_second"));
  }
  if (latencies.size() < kLinksToCompare) return;
  const double latency = median_of(latencies), rate = median_of(rates);
  for (const Json& link : part_of(causes.of(), "links")) {
    if (!text_of(link, "trouble").empty()) continue;
    const double own_latency = link.at("latency_us"), own_rate = link.at("megabytes_per_second");
    if (own_latency < latency * kFarFromMedian && own_rate * kFarFromMedian > rate) continue;
    causes.warn(
        "links", "look at the cable, the port and the load of these hosts",
        "from {} to {} a put takes {:.3g} us, and 1 MiB goes at {:.3g} MB/s; the medians are {:.3g} us and {:.3g} "
        "MB/s",
        node_name(causes.of(), link["from"]), node_name(causes.of(), link["to"]), own_latency, own_rate, latency, rate);
  }
}

}  // namespace

Json causes_of(const Json& examination) {
  Causes causes(examination);
  check_launch(causes);
  check_library(causes);
  check_versions(causes);
  check_settings(causes);
  check_strict(causes);
  check_route(causes, "mapped");
  check_between(causes);
  check_ended(causes);
  check_windows(causes);
  check_limits(causes);
  check_route(causes, "cma");
  check_providers(causes);
  check_links(causes);
  return causes.sorted();
}

bool allows_windows(const Json& causes) {
  return std::ranges::all_of(
      causes, [](const Json& cause) { return cause.at("severity") != "failure" || cause.at("check") == "between"; });
}

}  // namespace farside::tools
