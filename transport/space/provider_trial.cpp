// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/provider_trial.hpp"

#include <array>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "transport/base/integers.hpp"

namespace farside {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint64_t state = random_bits();
  for (std::size_t i = 0; i + kWordBytes <= count; i += kWordBytes) {
    state = mixed(state);
    std::memcpy(&bytes[i], &state, kWordBytes);
  }
  return bytes;
}

Error wrong(const char* what) { return {ErrorKind::kPeer, fmt::format("{} gave a wrong result", what)}; }

}  // namespace

ProviderTrial::ProviderTrial(Endpoint& endpoint, int rank, int ranks, std::uint64_t id)
    : endpoint_(endpoint), rank_(rank), ranks_(ranks), id_(id), memory_(kWordBytes + kBytes) {}

ProviderTrial::~ProviderTrial() {
  if (published_) endpoint_.withdraw(id_);
}

Status ProviderTrial::begin() {
  Result<Endpoint::Registration> exposed = endpoint_.register_memory(memory_.data(), memory_.size(), id_);
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

Status ProviderTrial::wait(Pending& pending, Progress& waiting) {
  for (Waiter waiter(waiting, wake_event_); !pending.done();) waiter.pause();
  return pending.take_error();
}

Status ProviderTrial::run(int other, const FabricAddress& address, Progress& waiting) {
  const Peer peer = endpoint_.insert(address);
  const HandlerPlace handler{peer, id_, static_cast<std::uint32_t>(rank_)};
  // The first message opens the connection. The others are under way at the same time.
  std::array<RemoteKey, kMessages> keys{};
  Pending pending;
  pending.towards(other);
  Status status;
  for (std::size_t i = 0; status && i < keys.size(); ++i)
    status = endpoint_.ask_for_description(pending, handler, std::as_writable_bytes(std::span(&keys[i], 1)));
  Status waited = wait(pending, waiting);
  if (!status) return status;
  if (!waited) return waited;
  for (const RemoteKey& key : keys) {
    if (key.base != keys[0].base || key.key != keys[0].key) return wrong("a message");
  }
  if (Status done = exchange({peer, keys[0], kWordBytes}, pending, waiting); !done) return done;
  return endpoint_.nic_atomics() ? add({peer, keys[0], 0}, pending, waiting) : Status();
}

Status ProviderTrial::exchange(const Endpoint::Place& memory, Pending& pending, Progress& waiting) {
  for (const std::size_t bytes : {kWordBytes, kBytes}) {
    const std::vector<std::byte> out = random_bytes(bytes);
    std::vector<std::byte> in(bytes);
    Status written = endpoint_.write(pending, memory, out.data(), bytes);
    Status waited = wait(pending, waiting);
    if (!written) return written;
    if (!waited) return waited;
    Status read = endpoint_.read(pending, memory, in.data(), bytes);
    waited = wait(pending, waiting);
    if (!read) return read;
    if (!waited) return waited;
    if (in != out) return wrong("a read of data that were written before");
  }
  return {};
}

Status ProviderTrial::add(const Endpoint::Place& word, Pending& pending, Progress& waiting) {
  const std::uint64_t addend = random_bits();
  std::uint64_t expected = 0;
  for (int i = 0; i < 3; ++i, expected += addend) {
    std::uint64_t fetched = ~expected;
    Status issued = endpoint_.control(pending, word, ControlCall::kFetchAdd, &addend, nullptr, &fetched);
    Status waited = wait(pending, waiting);
    if (!issued) return issued;
    if (!waited) return waited;
    if (fetched != expected) return wrong("a fetch-add of the adapter");
  }
  return {};
}

}  // namespace farside
