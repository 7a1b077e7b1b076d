// SPDX-License-Identifier: BSD-3-Clause
// The results of `farside doctor` on all ranks, as JSON. `farside doctor --json` prints it:
//
//   farside_doctor   the version of the format
//   farside          the version of the command
//   runtime          openmpi, mpich
//   ranks[]          rank, node (a number), and the facts of the rank (rank.hpp)
//   between          the provider that farside takes between the hosts, and the reasons against a better one; null: not
//                    tried
//     hosts[]        see common/host.hpp, and providers[]: provider, device, trouble (empty: farside has opened its
//                    endpoint there); the best first
//     pairs[]        from, to, provider (empty: none works), device (of `from`), why_not[]
//     all            provider, why_not[]: of a job on all hosts, where all ranks take the same provider
//   windows[]        of each rank and window: rank, call, among (node, all), wanted (the route that it is made for),
//                    routes (as farside_route of the window), provider, device, trouble (empty: right data, no errors)
//   links[]          between each node and the next: from, to, latency_us (put of 8 bytes and flush),
//                    megabytes_per_second (put of 1 MiB and flush), trouble
//   step             the step that the ranks began last
//   done             whether the ranks have ended in order
//   ended            step, reason; if they have not
//   causes[]         severity (failure: something does not work; warning: it works, but not as it could), check,
//                    what, advice; failures first
//
// Parts that the examination has not reached are missing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/child.hpp"
#include "tools/common/text.hpp"

namespace farside::tools {

// Adds a line of farside-peers doctor: an object whose members become members of the examination. Returns false if the
// line is no such object (other output of a rank).
bool take_line(Json& examination, std::string_view line);

// The member of this name; an empty array if there is none.
const Json& part_of(const Json& object, const char* key);
// The text of this name; empty if there is none.
std::string text_of(const Json& object, const char* key);
// The result of a rank's trial of a route; null if there was none.
const Json* route_of(const Json& rank, std::string_view route);
// The limit of this name of a rank; null if it is not known.
const Json* limit_of(const Json& rank, std::string_view limit);
// Whether the FARSIDE_ROUTES of a rank allows libfabric.
bool allows_fabric(const Json& rank);
// The entry of a host in the matrix of the trial between hosts; null if there was none.
const Json* host_of(const Json& examination, const std::string& name);

// The number of nodes.
int node_count(const Json& examination);
// The name of a node: its host, and its number too where several nodes have the same host name.
std::string node_name(const Json& examination, int node);
// "0-3, 8"
std::string rank_list(const std::vector<int>& ascending);
// "all ranks", "a (rank 1)", "a (ranks 0, 2), b (rank 1)"; after four nodes "and 12 more hosts".
std::string places(const Json& examination, const std::vector<int>& ascending_ranks);

// Formats an examination that has its causes: a line per cause, then a table of the nodes and one of their
// routes.
std::string examination_text(const Json& examination);

// The result of the trials of one provider.
struct ProviderTrials {
  struct Offer {
    std::string device;
    std::string trouble;  // why the host cannot open the provider's endpoint; empty: it has opened one
  };
  std::string provider;
  std::vector<Offer> offers;                      // of each host
  std::vector<std::vector<std::string>> trouble;  // [from][to]: why the trial failed; empty if not
};

// Returns `between`. `hosts`: the facts of each host; `trials`: of the providers, the best first.
Json matrix_of(std::vector<Json> hosts, const std::vector<ProviderTrials>& trials);

// Finds what is wrong from an examination (examination.hpp). Thread safety: any thread.

// Returns causes[]. If an examination has ended early, judges the parts that exist.
Json causes_of(const Json& examination);

// Whether the ranks may make windows: they load the same farside, with settings that agree. Otherwise a rank would wait
// for ranks that do not take part.
bool allows_windows(const Json& causes);

// Locked memory below this is too little for windows over an RDMA adapter.
inline constexpr std::uint64_t kLittleLockedMemory = std::uint64_t{64} << 20;

// Removes private parts from a text: names of hosts and users, addresses, and folders that are not the system's.
class Anonymizer {
 public:
  // `names`: the replacement of each name, for instance of a host.
  explicit Anonymizer(std::map<std::string, std::string> names) : names_(std::move(names)) {}

  // Names of this machine and user, and of the hosts of an examination, which are numbered in the order of the nodes.
  static Anonymizer of(const Json& examination);

  // Replaces a text that is a name by the replacement of the name. In other texts replaces names of three letters or
  // more that are whole words, and replaces IP addresses by ADDRESS. Shortens paths outside of the system's folders to
  // their last part: .../libmpi.so.
  std::string text(std::string_view original) const;
  // Replaces in all texts of an object, but not in its keys.
  Json json(Json original) const;

 private:
  std::map<std::string, std::string> names_;
};

// Returns the text of `farside doctor --report`, to be pasted into a bug report: versions, the FARSIDE_* and FI_* of
// `environment`, the examination, and `info` (of gather_info()). `anonymizer` takes out what is private; null: shows
// all.
std::string report_text(const Json& examination, const Json& info, const Environment& environment,
                        const Anonymizer* anonymizer);

}  // namespace farside::tools
