// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <optional>

#include "tools/common/collectives.hpp"
#include "tools/common/host.hpp"
#include "tools/doctor/examination.hpp"
#include "tools/doctor/peers.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/statistics.hpp"
#include "transport/base/waiter.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/space/provider_agreement.hpp"

namespace farside::tools {
namespace {

// The endpoint of one provider. Its waits call no MPI.
class OpenEndpoint {
 public:
  Status open(const std::string& provider, const Settings& settings) {
    Result<InfoHandle> info = find(provider, settings);
    if (!info) return info.error();
    Result<std::unique_ptr<Fabric>> opened = Fabric::open(std::move(info.value()), settings, no_runtime_, statistics_);
    if (!opened) return opened.error();
    fabric_ = std::move(opened.value());
    return {};
  }
  Fabric* get() const { return fabric_.get(); }

 private:
  static Result<InfoHandle> find(const std::string& provider, const Settings& settings) {
    if (!settings.provider.empty()) return choose_provider(provider, settings.device);
    Candidates all = candidates({}, settings.device);
    const auto preference = std::ranges::find(preferred_providers(), provider) - preferred_providers().begin();
    const auto index = static_cast<std::size_t>(preference);
    for (Candidate& one : all.found)
      if (one.preference == index) return std::move(one.info);
    return Error{ErrorKind::kNoRoute, all.reasons.at(index)};
  }

  NoProgress no_runtime_;
  Statistics statistics_;
  std::unique_ptr<Fabric> fabric_;
};

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
    endpoint.get()->set_on_trial(endpoint.get()->insert(address), true);
    status = trial->run(to, address, *endpoint.get());
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
  for (const std::string& text : gather_texts(json_text(host_facts()), comm)) hosts.push_back(parse_json(text));
  std::vector<ProviderTrials> trials;
  for (const std::string& provider : providers_to_try(settings))
    trials.push_back(try_provider(provider, settings, comm));
  return matrix_of(std::move(hosts), trials);
}

}  // namespace farside::tools
