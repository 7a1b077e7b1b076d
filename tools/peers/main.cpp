// SPDX-License-Identifier: BSD-3-Clause
// farside-peers-openmpi, farside-peers-mpich: the MPI part of the commands that look at several ranks. The first word
// is the command that starts it:
//   mpirun.openmpi --host a,b build/bin/farside-peers-openmpi info [--json]
#include <cstdio>
#include <memory>
#include <optional>

#include "tools/common/host.hpp"
#include "tools/peers/collectives.hpp"
#include "tools/peers/peers.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/timing.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/devices.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside::tools {
namespace {

// The endpoint of one provider, which also makes progress for the thread that waits for it. Its waits call no MPI.
class OpenEndpoint final : public Progress {
 public:
  Status open(const std::string& provider, const Settings& settings) {
    Result<InfoHandle> info = find(provider, settings);
    if (!info) return info.error();
    Result<std::unique_ptr<Fabric>> opened = Fabric::open(std::move(info.value()), settings, *this, statistics_);
    if (!opened) return opened.error();
    fabric_ = std::move(opened.value());
    return {};
  }
  Fabric* get() const { return fabric_.get(); }

  // The endpoint calls this while it is being opened and waits for its own test; it cannot be polled yet.
  void poll() override {
    if (fabric_) fabric_->progress().poll();
  }
  void poll_runtime() override {}
  void listen(WakeEvent& wake_event) override {
    if (fabric_) fabric_->progress().listen(wake_event);
  }
  void stop_listening(WakeEvent& wake_event) override {
    if (fabric_) fabric_->progress().stop_listening(wake_event);
  }

 private:
  static Result<InfoHandle> find(const std::string& provider, const Settings& settings) {
    if (!settings.provider.empty()) return choose_provider(provider, settings.device);
    Candidates all = candidates(settings.device);
    for (Candidate& one : all.found)
      if (preferred_providers()[one.preference] == provider) return std::move(one.info);
    for (std::size_t i = 0; i < all.reasons.size(); ++i)
      if (preferred_providers()[i] == provider) return Error{ErrorKind::kNoRoute, all.reasons[i]};
    return no_candidate(all);
  }

  Statistics statistics_;
  std::unique_ptr<Fabric> fabric_;
};

Json own_facts() {
  Json facts = host_facts();
  for (auto& adapter : facts["adapters"]) adapter["trouble"] = why_adapter_unusable(adapter["adapter"]).value_or("");
  return facts;
}

using Addresses = std::vector<FabricAddress>;

Addresses gather_addresses(const Fabric* fabric, int hosts, MPI_Comm comm) {
  const FabricAddress mine = fabric != nullptr ? fabric->address() : FabricAddress();
  Addresses all(static_cast<std::size_t>(hosts));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm);
  return all;
}

// One round: each host tries the one `step` behind it. Returns the reason of this host's failure.
std::string run_round(OpenEndpoint& endpoint, const ProviderTrials& trials, const Addresses& addresses, int step,
                      std::uint64_t id, MPI_Comm comm) {
  const auto [rank, hosts] = Ranks(comm);
  const int to = (rank + step) % hosts;
  std::optional<ProviderTrial> trial;
  Status status;
  if (endpoint.get() != nullptr) status = trial.emplace(*endpoint.get(), rank, hosts, id).begin();
  sleeping_barrier(comm);
  if (status && endpoint.get() != nullptr && trials.offers[static_cast<std::size_t>(to)].trouble.empty()) {
    const FabricAddress& address = addresses[static_cast<std::size_t>(to)];
    endpoint.get()->progress().limit_silence(endpoint.get()->insert(address), Timing::kTrial);
    status = trial->run(to, address, endpoint);
  }
  sleeping_barrier(comm);
  return status ? std::string() : status.error().text;
}

}  // namespace

std::vector<std::string> providers_to_try(const Settings& settings) {
  if (!settings.provider.empty()) return {settings.provider};
  return {preferred_providers().begin(), preferred_providers().end()};
}

static ProviderTrials try_provider(const std::string& provider, const Settings& settings, MPI_Comm comm) {
  const int hosts = Ranks(comm).all;
  OpenEndpoint endpoint;
  const Status opened = endpoint.open(provider, settings);
  const nlohmann::json mine{{"device", opened ? endpoint.get()->device() : ""},
                            {"trouble", opened ? "" : opened.error().text}};
  ProviderTrials trials;
  trials.provider = provider;
  for (const std::string& text : gather_texts(json_text(mine), comm)) {
    const auto offer = parse_json(text);
    trials.offers.push_back({offer.at("device"), offer.at("trouble")});
  }
  const Addresses addresses = gather_addresses(endpoint.get(), hosts, comm);
  std::uint64_t id = random_bits();
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
  nlohmann::json failures = nlohmann::json::array();
  for (int step = 1; step < hosts; ++step) {
    id = mixed(id);
    failures.push_back(run_round(endpoint, trials, addresses, step, id, comm));
  }
  for (const std::string& text : gather_texts(json_text(failures), comm)) {
    const auto of_host = parse_json(text);
    const std::size_t from = trials.trouble.size();
    std::vector<std::string> row(static_cast<std::size_t>(hosts));
    for (std::size_t i = 0; i < of_host.size(); ++i) row[(from + i + 1) % row.size()] = of_host[i];
    trials.trouble.push_back(std::move(row));
  }
  return trials;
}

Json try_hosts(const Settings& settings, MPI_Comm comm) {
  std::vector<Json> hosts;
  for (const std::string& text : gather_texts(json_text(own_facts()), comm)) hosts.push_back(parse_json(text));
  std::vector<ProviderTrials> trials;
  for (const std::string& provider : providers_to_try(settings))
    trials.push_back(try_provider(provider, settings, comm));
  return matrix_of(std::move(hosts), trials);
}

namespace {

// Collective over one rank of each host. Prints the result at rank 0, and returns the exit code.
int try_hosts_of_ranks(MPI_Comm comm, bool as_json) {
  const Result<Settings> settings = read_settings();
  if (!at_all(settings.ok(), comm)) {
    if (!settings) std::fprintf(stderr, "farside info: %s\n", settings.error().text.c_str());
    return 2;
  }
  const Json matrix = try_hosts(settings.value(), comm);
  if (Ranks(comm).mine == 0) std::fputs((as_json ? json_text(matrix, 2) + '\n' : matrix_text(matrix)).c_str(), stdout);
  return matrix.at("all").at("provider") == "" ? 1 : 0;
}

// What farside takes between the hosts of the ranks, and why: one rank of each host tries libfabric's providers with
// each other host; MPI only brings them together.
int info(const std::vector<std::string_view>& words) {
  MPI_Init(nullptr, nullptr);
  MPI_Comm hosts = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_first_of_node(MPI_COMM_WORLD) ? 0 : MPI_UNDEFINED, Ranks(MPI_COMM_WORLD).mine,
                 &hosts);
  int exit_code = 0;
  if (hosts != MPI_COMM_NULL) {
    exit_code = try_hosts_of_ranks(hosts, !words.empty() && words[0] == "--json");
    MPI_Comm_free(&hosts);
  }
  sleeping_barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return exit_code;
}

}  // namespace
}  // namespace farside::tools

int main(int argc, char** argv) {
  const std::string_view task = argc > 1 ? argv[1] : "";
  const std::vector<std::string_view> words(argv + (argc > 1 ? 2 : 1), argv + argc);
  if (task == "info") return farside::tools::info(words);
  if (task == "doctor") return farside::tools::examine(words);
  std::fprintf(stderr, "%s: '%s' is no command that this program is a part of: info, doctor\n", argv[0],
               std::string(task).c_str());
  return 2;
}
