// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/provider_agreement.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "transport/base/log.hpp"
#include "transport/base/random.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/process.hpp"
#include "transport/space/provider_trial.hpp"

namespace farside {
namespace {

constexpr std::uint64_t kKnownDevice = 1 << 0;    // FARSIDE_DEVICE names a device of the rank's machine
constexpr std::uint64_t kUnknownDevice = 1 << 1;  // or nothing there
constexpr std::uint64_t kNoNicAtomics = 1 << 2;

Providers best(Providers of) { return of & -of; }

// The provider of this bit, unless FARSIDE_PROVIDER names the only one.
const char* name_of(Providers one) { return preferred_providers()[static_cast<std::size_t>(std::countr_zero(one))]; }

// What was agreed on, and why not a better provider.
struct Common {
  Providers providers = 0;
  std::string passed_over;  // empty: no rank wanted a better one
};

// `excluded`: those that have failed.
Result<Common> agree_on_providers(Agreement& agreement, Providers excluded) {
  Process& process = Process::instance();
  const Settings& settings = *process.settings().value();
  const Process::ProviderOffer own = process.offer_providers();
  std::uint64_t flags = 0;
  if (!settings.device.empty()) flags |= own.unknown_device ? kUnknownDevice : kKnownDevice;
  // A rank that can use no provider reports that when it opens its endpoint.
  const Result<Agreement::Said> said =
      agreement.agree({}, flags, {own.usable == 0 ? 0 : std::uint64_t{~own.usable | excluded}, own.wanted & ~excluded});
  if (!said) return said.error();
  if ((said.value().flags & (kUnknownDevice | kKnownDevice)) == kUnknownDevice) {
    const Result<Agreement::Said> unknown =
        agreement.agree(own.unknown_device ? Status(*own.unknown_device) : Status());
    if (!unknown) return unknown.error();
  }
  Common common;
  common.providers = static_cast<Providers>(~said.value().words[0]) & ~excluded;
  const auto wanted = best(static_cast<Providers>(said.value().words[1]));
  if (wanted == 0 || (common.providers & wanted) != 0 || !settings.provider.empty()) return common;
  const bool lacks = (own.usable & wanted) == 0;
  const Result<Agreement::Said> lacking =
      agreement.agree(lacks ? Status(Error{ErrorKind::kNoRoute, process.why_not(wanted)}) : Status());
  if (!lacking) common.passed_over = fmt::format("not {}: {}", name_of(wanted), lacking.error().text);
  return common;
}

// The progress of a trial: the process's own progress leaves out an endpoint that is not in use yet.
class TrialProgress final : public Progress {
 public:
  explicit TrialProgress(Fabric& fabric) : fabric_(fabric) {}
  void poll() override { fabric_.poll(); }
  void poll_runtime() override { Process::instance().poll_runtime(); }
  void listen(WakeEvent& wake_event) override { fabric_.listen(wake_event); }
  void stop_listening(WakeEvent& wake_event) override { fabric_.stop_listening(wake_event); }

 private:
  Fabric& fabric_;
};

Status run_trial(ProviderTrial& trial, Fabric& fabric, int other, const FabricAddress& address) {
  TrialProgress progress(fabric);
  // An endpoint that is in use may have slow peers.
  const bool in_use = std::ranges::any_of(Process::instance().endpoints_in_use(),
                                          [&](const Process::EndpointInUse& each) { return each.fabric == &fabric; });
  if (!in_use) fabric.limit_silence(ProviderAgreement::kTrialLimit);
  Status done = trial.run(other, address, progress);
  if (!in_use) fabric.limit_silence(std::nullopt);
  if (done) return {};
  return Error{ErrorKind::kPeer,
               fmt::format("a trial of device {} with rank {}: {}", fabric.device(), other, done.error().text)};
}

}  // namespace

Result<bool> ProviderAgreement::carry_out(Agreement& agreement, GroupPeers& peers) const {
  Process& process = Process::instance();
  const bool only_one = !process.settings().value()->provider.empty();
  bool known = used != 0;
  Providers failed = 0;
  std::string passed_over;
  while (true) {
    Common common;
    if (known) {
      common.providers = used;
    } else {
      Result<Common> agreed = agree_on_providers(agreement, failed);
      if (!agreed) return agreed.error();
      common = std::move(agreed.value());
      if (passed_over.empty()) passed_over = common.passed_over;
    }

    Fabric* fabric = nullptr;
    std::optional<ProviderTrial> trial;
    bool nic_atomics = false;
    Status status;
    if (Result<Fabric*> tried = process.try_fabric(common.providers); tried) {
      fabric = tried.value();
      fabric->share_node(node_members);
      const Result<bool> opened = open(*fabric);
      status = opened.status();
      nic_atomics = opened && opened.value();
    } else {
      status = tried.error();
    }
    const bool to_try = !known && fabric != nullptr && is_adapter(fabric->provider()) && agreement.ranks() > 1;
    if (status && to_try) status = trial.emplace(*fabric, agreement.rank(), agreement.ranks(), mixed(~id)).begin();
    if (!known) {
      Status gathered = peers.gather_addresses(agreement.group(), status ? fabric : nullptr, process);
      if (status) status = std::move(gathered);
    }
    if (status && to_try && peers.addresses().known())
      status = run_trial(*trial, *fabric, peers.trial_partner(), peers.addresses().of(peers.trial_partner()));
    const Result<Agreement::Said> said = agreement.agree(status, nic_atomics ? 0 : kNoNicAtomics);
    trial.reset();
    if (said) {
      process.use_fabric(*fabric);
      peers.keep_addresses();
      if (!passed_over.empty() && agreement.rank() == 0)
        log(LogLevel::kWarn, "the ranks use libfabric {}, {}", fabric->provider(), passed_over);
      return (said.value().flags & kNoNicAtomics) == 0;
    }
    close();
    if (!known) peers.forget_addresses();
    const Providers tried = best(common.providers);
    if (only_one || tried == 0 || !is_adapter(name_of(tried))) {
      if (fabric != nullptr) process.leave_fabric(*fabric);
      return said.error();
    }
    failed |= tried;
    if (fabric != nullptr) process.discard_fabric(*fabric, said.error().text);
    if (passed_over.empty()) passed_over = fmt::format("not {}: {}", name_of(tried), said.error().text);
    known = false;
  }
}

}  // namespace farside
