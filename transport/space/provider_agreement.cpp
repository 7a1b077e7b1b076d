// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/provider_agreement.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/base/log.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/process.hpp"

namespace farside {

namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

Error wrong(const char* what) { return {ErrorKind::kPeer, fmt::format("{} gave a wrong result", what)}; }

}  // namespace

ProviderTrial::ProviderTrial(Endpoint& endpoint, int rank, int ranks, std::uint64_t id)
    : endpoint_(endpoint), rank_(rank), ranks_(ranks), id_(id), memory_(kWordBytes + kBytes) {}

ProviderTrial::~ProviderTrial() {
  if (published_) endpoint_.withdraw(id_);
}

Status ProviderTrial::begin() {
  Result<Registration> exposed = endpoint_.register_memory(memory_.data(), memory_.size(), id_);
  if (!exposed) return exposed.error();
  registration_ = std::move(exposed.value());
  MessageHandler::ServedSpace served;
  served.ranks = static_cast<std::uint32_t>(ranks_);
  std::memcpy(served.description.data(), &registration_.key, sizeof registration_.key);
  served.description_bytes = sizeof registration_.key;
  published_ = endpoint_.publish(id_, served);
  if (!published_) return Error{ErrorKind::kOther, "a trial with the same id is under way"};
  return {};
}

Status ProviderTrial::run(int other, const FabricAddress& address, Progress& waiting) {
  const Peer peer = endpoint_.insert(address);
  Pending pending;
  pending.towards(other);
  // Waits for an operation, or for the parts that were issued before it failed.
  const auto complete = [&](Status issued) {
    for (Waiter waiter(waiting, wake_event_); !pending.done();) waiter.pause();
    Status done = pending.take_error();
    return issued ? std::move(done) : std::move(issued);
  };
  // The first message opens the connection. The others are under way at the same time.
  std::array<RemoteKey, kMessages> keys{};
  Status status;
  for (std::size_t i = 0; status && i < keys.size(); ++i) {
    const auto answer = std::as_writable_bytes(std::span(&keys[i], 1));
    status = endpoint_.request(pending, peer, HandlerRequest::question(MessageKind::kDescribe, answer).to(id_, rank_),
                               nullptr);
  }
  status = complete(std::move(status));
  const auto differs = [&](const RemoteKey& key) { return key.base != keys[0].base || key.key != keys[0].key; };
  if (status && std::ranges::any_of(keys, differs)) status = wrong("a message");
  std::mt19937_64 random(random_bits());
  for (const std::size_t bytes : {kWordBytes, kBytes}) {
    const Endpoint::Place memory{peer, keys[0], kWordBytes};
    std::vector<std::byte> out(bytes), in(bytes);
    std::ranges::generate(out, [&] { return static_cast<std::byte>(random()); });
    if (status) status = complete(endpoint_.write(pending, memory, out.data(), bytes));
    if (status) status = complete(endpoint_.read(pending, memory, in.data(), bytes));
    if (status && in != out) status = wrong("a read of data that were written before");
  }
  const std::uint64_t addend = random_bits();
  std::uint64_t expected = 0;
  for (int i = 0; status && endpoint_.nic_atomics() && i < 3; ++i, expected += addend) {
    std::uint64_t fetched = ~expected;
    const ControlStep add{ControlCall::kFetchAdd, {}, 0, addend, 0};
    status = complete(endpoint_.control(pending, {peer, keys[0], 0}, add, &fetched));
    if (status && fetched != expected) status = wrong("a fetch-add of the adapter");
  }
  return status;
}

namespace {

constexpr std::uint64_t kKnownDevice = 1 << 0;    // FARSIDE_DEVICE names a device of the rank's machine
constexpr std::uint64_t kUnknownDevice = 1 << 1;  // or nothing there
constexpr std::uint64_t kRankHasNoNicAtomics = 1 << 2;

Providers best(Providers of) { return of & -of; }

// The provider of this bit, unless FARSIDE_PROVIDER names the only one.
const char* name_of(Providers one) { return preferred_providers()[static_cast<std::size_t>(std::countr_zero(one))]; }

// Returns whether this process has not logged the reason yet. Numbers in the text are ignored, because a rank has
// another number in another group.
bool is_new(const std::string& reason) {
  std::string words;
  std::ranges::remove_copy_if(reason, std::back_inserter(words), [](char c) { return c >= '0' && c <= '9'; });
  return Log::is_new(std::move(words));
}

struct Common {
  Providers providers = 0;  // that all ranks can use
  bool best = true;         // no rank can use a better one with other ranks
};

// `excluded`: those that have failed. Says in `passed_over`, if it is empty, why a better one that some rank wanted is
// not among them.
Result<Common> agree_on_providers(Group& group, Providers excluded, std::string& passed_over) {
  Process& process = Process::instance();
  const Settings& settings = *process.settings().value();
  const ProviderChoice::Offer own = process.provider_choice().offer();
  std::uint64_t flags = 0;
  if (!settings.device.empty()) flags |= own.unknown_device ? kUnknownDevice : kKnownDevice;
  // A rank that can use no provider, whatever the group, reports that when it opens its endpoint.
  const std::uint64_t objections = own.usable == 0 ? 0 : std::uint64_t{~own.usable | excluded};
  const Result<Group::Combined> combined = group.agree({}, flags, {objections, own.wanted & ~excluded, own.usable});
  if (!combined) return combined.error();
  if ((combined.value().flags & (kUnknownDevice | kKnownDevice)) == kUnknownDevice) {
    const Result<Group::Combined> unknown = group.agree(own.unknown_device ? Status(*own.unknown_device) : Status());
    if (!unknown) return unknown.error();
  }
  const Group::Words& words = combined.value().words;
  Common common;
  common.providers = static_cast<Providers>(~words[0]) & ~excluded;
  common.best = !settings.provider.empty() || (static_cast<Providers>(words[2]) & (best(common.providers) - 1)) == 0;
  const Providers wanted = best(static_cast<Providers>(words[1]));
  if (wanted == 0 || (common.providers & wanted) != 0) return common;
  Status own_reason;
  if ((own.usable & wanted) == 0) own_reason = Error{ErrorKind::kNoRoute, process.provider_choice().why_not(wanted)};
  const Result<Group::Combined> lacking = group.agree(own_reason);
  if (!lacking && passed_over.empty()) passed_over = fmt::format("not {}: {}", name_of(wanted), lacking.error().text);
  return common;
}

// A provider while the ranks try it. Unless they take it, its end reverts what this rank has done for it.
struct Attempt {
  ~Attempt() {
    if (taken) return;
    plan.close();
    if (!known) group.forget_addresses();
    if (fabric != nullptr)
      process.provider_choice().leave(*fabric, own_fault && has_substitute ? status.error().text : "");
  }
  // Collective: steps 2 to 5. Success on all ranks, or on none. `best`: Common's.
  Result<bool> carry_out(bool best, const std::string& passed_over) {
    const int rank = group.rank();
    const bool alone = group.ranks() == 1;
    const Result<OpenEndpoint*> tried = process.provider_choice().try_best(provider);
    status = tried.status();
    if (tried) {
      fabric = tried.value();
      fabric->share_node(static_cast<std::size_t>(group.node().members()));
      status = plan.open(*fabric);
    }
    std::optional<ProviderTrial> begun;
    if (status && !known && !alone && is_adapter(only_one ? fabric->provider() : name_of(provider)))
      status = begun.emplace(*fabric, rank, group.ranks(), mixed(~plan.id)).begin();
    own_fault = !status && !known;
    if (!known) {
      Status gathered = group.gather_addresses(status ? fabric : nullptr, process);
      if (status) status = std::move(gathered);
      if (status && group.addresses().known() && begun) status = try_partner(*begun);
    }
    const bool lacks_atomics = !status || !fabric->nic_atomics();
    const Result<Group::Combined> all = group.agree(status, lacks_atomics ? kRankHasNoNicAtomics : 0);
    if (!all) return all.error();
    taken = true;
    process.use_fabric(*fabric);
    group.keep_addresses(best);
    if (!passed_over.empty() && rank == 0 && is_new(passed_over))
      log(LogLevel::kWarn, "the ranks use libfabric {}, {}", fabric->provider(), passed_over);
    return (all.value().flags & kRankHasNoNicAtomics) == 0;
  }
  Status try_partner(ProviderTrial& begun) {
    const int other = group.trial_partner();
    Status done = plan.trial ? plan.trial(other) : Status();
    if (!plan.trial) {
      // Only this peer must answer in the time of a trial. The endpoint may have others, which may be slow.
      const FabricAddress& address = group.addresses().of(other);
      const Peer peer = fabric->insert(address);
      fabric->set_on_trial(peer, true);
      done = begun.run(other, address, *fabric);
      fabric->set_on_trial(peer, false);
    }
    if (done) return done;
    own_fault = true;
    return Error{ErrorKind::kPeer,
                 fmt::format("a trial of device {} with rank {}: {}", fabric->device(), other, done.error().text)};
  }

  const ProviderAgreement& plan;
  Group& group;
  const Providers provider;
  const bool known;  // the addresses of all ranks are
  Process& process = Process::instance();
  const bool only_one = !process.settings().value()->provider.empty();     // FARSIDE_PROVIDER names it
  const bool has_substitute = !only_one && is_adapter(name_of(provider));  // another one is tried after it
  OpenEndpoint* fabric = nullptr;
  Status status{};
  bool own_fault = false;  // `status` is of this rank's part
  bool taken = false;
};

}  // namespace

Result<bool> ProviderAgreement::carry_out(Group& group) const {
  Providers failed = 0;
  std::string passed_over;  // the first reason
  for (bool known = used != 0;; known = false) {
    Common common{used};
    if (!known) {
      const Result<Common> agreed = agree_on_providers(group, failed, passed_over);
      if (!agreed) return agreed.error();
      common = agreed.value();
    }
    const Providers provider = best(common.providers);
    if (provider == 0)
      return Error{ErrorKind::kNoRoute, fmt::format("the ranks have no libfabric provider in common{}{}",
                                                    passed_over.empty() ? "" : ": ", passed_over)};
    Attempt attempt{*this, group, provider, known};
    Result<bool> nic_atomics = attempt.carry_out(common.best, passed_over);
    if (nic_atomics || !attempt.has_substitute) return nic_atomics;
    failed |= provider;
    if (passed_over.empty()) passed_over = fmt::format("not {}: {}", name_of(provider), nic_atomics.error().text);
  }
}

}  // namespace farside
