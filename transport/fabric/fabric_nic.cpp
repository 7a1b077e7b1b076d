// SPDX-License-Identifier: BSD-3-Clause
// Atomics of the target's adapter, on 64-bit words (fi_atomic(3), fi_verbs(7)).
#include <cstring>

#include <rdma/fi_atomic.h>

#include "transport/fabric/fabric_issue.hpp"
#include "transport/fabric/local_buffers.hpp"

namespace farside {

// `compare` null: a fetch-add; else a compare-and-swap.
Status Fabric::nic_atomic(Pending& pending, const Place& place, const std::uint64_t* operand,
                          const std::uint64_t* compare, std::uint64_t* fetched) {
  statistics_.add(RouteKind::kFabric, Counted::kNicAtomic, sizeof *operand);
  return issue(pending, place.peer, compare == nullptr ? "fi_fetch_atomic" : "fi_compare_atomic",
               [&](Operation& operation, fid_ep* endpoint) -> ssize_t {
                 ProviderBuffer result;
                 FabricHandle<fid_mr> none;  // a word goes through a slot
                 const int code = incoming(under_way_.memory(), operation, fetched, sizeof *fetched, none, result);
                 if (code != 0) return code;
                 operation.swapped = nic_form_->swapped;
                 void* descriptor = nullptr;
                 const auto give = [&](const std::uint64_t* from, std::size_t at) -> void* {
                   if (nic_form_->by_value) return reinterpret_cast<void*>(*from);  // NOLINT(performance-no-int-to-ptr)
                   descriptor = operation.slot->descriptor;
                   return std::memcpy(operation.slot->bytes + at, from, sizeof *from);
                 };
                 void* const first = give(operand, 8);
                 const std::uint64_t address = place.key.base + place.offset;
                 if (compare == nullptr) {
                   return fi_fetch_atomic(endpoint, first, 1, descriptor, result.at, result.descriptor, FI_ADDR_UNSPEC,
                                          address, place.key.key, FI_UINT64, FI_SUM, &operation.provider_context);
                 }
                 void* const second = give(compare, 16);
                 return fi_compare_atomic(endpoint, first, 1, descriptor, second, descriptor, result.at,
                                          result.descriptor, FI_ADDR_UNSPEC, address, place.key.key, FI_UINT64,
                                          FI_CSWAP, &operation.provider_context);
               });
}

Status Fabric::control(Pending& pending, const Place& place, ControlCall call, const std::uint64_t* operand,
                       const std::uint64_t* compare, std::uint64_t* fetched) {
  switch (call) {
    case ControlCall::kFetchAdd: return nic_atomic(pending, place, operand, nullptr, fetched);
    case ControlCall::kCompareAndSwap: return nic_atomic(pending, place, operand, compare, fetched);
    // An adapter reads and writes aligned words whole. No protocol writes a word on which others may use atomics
    // meanwhile (remote_memory.hpp).
    case ControlCall::kRead: return read(pending, place, fetched, *operand * sizeof *fetched);
    case ControlCall::kWrite: return write(pending, place, operand, sizeof *operand);
  }
  return {};
}

// Tries atomics over the adapter on memory of this process, and sets nic_form_. Returns why there are none; empty if
// their results are right.
std::string Fabric::try_nic_atomics() {
  alignas(64) std::uint64_t words[8] = {};
  const Result<Registration> exposed = register_memory(words, sizeof words, random_bits());
  if (!exposed) return exposed.error().text;
  const Place place{insert(address()), exposed.value().key, 0};
  const std::atomic_ref word(words[0]);
  Pending pending;
  Status status;
  const auto take = [&](std::uint64_t operand, const std::uint64_t* compare) {
    std::uint64_t fetched = 0;
    Status issued = nic_atomic(pending, place, &operand, compare, &fetched);
    // This function polls, since waiters poll only the process's endpoint, which this is not yet.
    for (Waiter waiter(progress_, own_wake_event_); !pending.done();) {
      poll();
      waiter.pause();
    }
    Status completed = pending.take_error();
    if (status && !issued) status = std::move(issued);
    if (status && !completed) status = std::move(completed);
    return fetched;
  };
  // Values that differ from every address, also if bytes are read in another order.
  constexpr std::uint64_t kFirst = 0x0102030405060708, kAdded = 0x1000000000000001, kOther = 0xF1E2D3C4B5A69788;
  for (const bool by_value : {false, true}) {
    nic_form_ = {by_value, false};
    word.store(kFirst);
    const std::uint64_t fetched = take(kAdded, nullptr);
    // Without any change, no other form is tried: a provider that is right would read a value as an address.
    if (word.load() == kFirst) break;
    if (word.load() != kFirst + kAdded) continue;
    nic_form_->swapped = fetched == __builtin_bswap64(kFirst);
    bool right = fetched == kFirst || nic_form_->swapped;
    const std::uint64_t expected = kFirst + kAdded, unexpected = kFirst;
    right = right && take(kOther, &unexpected) == expected && word.load() == expected;
    right = right && take(kOther, &expected) == expected && word.load() == kOther;
    if (right && status) return {};
    break;
  }
  nic_form_.reset();
  return status ? "a fetch-add or a compare-and-swap on this process's own memory had a wrong result"
                : status.error().text;
}

}  // namespace farside
