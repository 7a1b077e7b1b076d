// SPDX-License-Identifier: BSD-3-Clause
// Operations whose local buffers are in the memory of a GPU (transport/node/device_memory.hpp): they use copies in the
// memory of the host, and are complete when the call returns.
#include <array>
#include <optional>
#include <utility>

#include "pmpi/window/calls.hpp"
#include "pmpi/window/staged_buffer.hpp"
#include "pmpi/window/strict_calls.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/node/device_memory.hpp"

namespace farside::pmpi {
namespace {

// The call that completes the request reports the error.
bool has_failed(const RemoteBuffer& target) { return target.own != nullptr && target.own->has_error(); }

// Parts of an operation that failed may be under way, and use its copies.
Outcome end_failed(Space& space, Outcome failed) {
  (void)space.flush_all();
  return failed;
}

}  // namespace

// Strict compares the copies with what they were until the epoch ends.
void Calls::keep(StagedBuffer copy) {
  if (strict_ != nullptr) strict_->keep(std::make_shared<StagedBuffer>(std::move(copy)));
}

std::optional<Outcome> Calls::stage_transfer(const LocalBuffer& origin, const RemoteBuffer& target, bool put) {
  if (!DeviceMemory::possible()) [[likely]]
    return std::nullopt;
  if (target.rank == MPI_PROC_NULL) return std::nullopt;
  const Datatype* const type = StagedBuffer::type_on_device(origin);
  if (type == nullptr) return std::nullopt;
  StagedBuffer copy(origin, *type);
  if (Status made = copy.make(); !made) return made;
  if (put) {
    if (Status fetched = copy.fetch(); !fetched) return fetched;
  }
  if (Outcome done = transfer(copy.on_host(), target, put); !done) return end_failed(*window_.space, std::move(done));
  Status complete = window_.space->flush(target.rank);
  if (complete && !put && !has_failed(target)) complete = copy.store();
  keep(std::move(copy));
  return complete;
}

std::optional<Outcome> Calls::stage_accumulate(const LocalBuffer& origin, const LocalBuffer* result,
                                               const RemoteBuffer& target, MPI_Op op) {
  if (!DeviceMemory::possible()) [[likely]]
    return std::nullopt;
  if (target.rank == MPI_PROC_NULL) return std::nullopt;
  const Datatype* const origin_type = op != MPI_NO_OP ? StagedBuffer::type_on_device(origin) : nullptr;
  const Datatype* const result_type = result != nullptr ? StagedBuffer::type_on_device(*result) : nullptr;
  if (origin_type == nullptr && result_type == nullptr) return std::nullopt;
  std::optional<StagedBuffer> from, to;
  if (origin_type != nullptr) {
    from.emplace(origin, *origin_type);
    if (Status made = from->make(); !made) return made;
    if (Status fetched = from->fetch(); !fetched) return fetched;
  }
  std::optional<LocalBuffer> to_host;
  if (result != nullptr) to_host = *result;
  if (result_type != nullptr) {
    to.emplace(*result, *result_type);
    if (Status made = to->make(); !made) return made;
    to_host = to->on_host();
  }
  if (Outcome done = accumulate(from ? from->on_host() : origin, to_host ? &*to_host : nullptr, target, op); !done)
    return end_failed(*window_.space, std::move(done));
  Status complete = window_.space->flush(target.rank);
  if (complete && to && !has_failed(target)) complete = to->store();
  if (from) keep(std::move(*from));
  if (to) keep(std::move(*to));
  return complete;
}

std::optional<Outcome> Calls::stage_compare_and_swap(const void* origin, const void* compare, void* result,
                                                     MPI_Datatype type, int rank, MPI_Aint displacement) {
  if (!DeviceMemory::possible()) [[likely]]
    return std::nullopt;
  if (rank == MPI_PROC_NULL) return std::nullopt;
  std::array<void*, 3> addresses{const_cast<void*>(origin), const_cast<void*>(compare), result};
  std::array<std::optional<StagedBuffer>, 3> copies;
  bool any = false;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const LocalBuffer buffer{addresses[i], 1, type};
    const Datatype* const found = StagedBuffer::type_on_device(buffer);
    if (found == nullptr) continue;
    any = true;
    copies[i].emplace(buffer, *found);
    if (Status made = copies[i]->make(); !made) return made;
    if (i != 2) {
      if (Status fetched = copies[i]->fetch(); !fetched) return fetched;
    }
    addresses[i] = copies[i]->on_host().address;
  }
  if (!any) return std::nullopt;
  if (Outcome done = compare_and_swap(addresses[0], addresses[1], addresses[2], type, rank, displacement); !done)
    return end_failed(*window_.space, std::move(done));
  Status complete = window_.space->flush(rank);
  if (complete && copies[2]) complete = copies[2]->store();
  for (std::optional<StagedBuffer>& copy : copies) {
    if (copy) keep(std::move(*copy));
  }
  return complete;
}

}  // namespace farside::pmpi
