// SPDX-License-Identifier: BSD-3-Clause
// Finds a datatype's translation: in a hash table for predefined types, in an attribute for all others.
#include "pmpi/datatypes/datatype.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/state.hpp"

namespace farside::pmpi {

// The owner of the translations: made when MPI is initialized.
class Datatypes {
 public:
  Datatypes() { predefined_table.fill(predefined_); }

  const Datatype* find_derived(MPI_Datatype handle, Error* why) {
    // The attribute look-up takes some 50 ns, most of it in the runtime's lock. Programs often use one type many times
    // in succession, so each thread caches the last one.
    auto& recent = this_thread.type;
    const std::uintptr_t bits = key_of_handle(handle);
    // Acquire, paired with the release order in release(): after another thread has freed the type and got the same
    // handle for a new one, this thread sees the new count.
    const std::uint64_t freed = freed_.load(std::memory_order_acquire);
    if (recent.handle == bits && recent.freed == freed && recent.datatype != nullptr)
      return static_cast<const Datatype*>(recent.datatype);
    const Result<const Datatype*> found = find_or_make(handle);
    if (!found && why != nullptr) *why = found.error();
    if (!found) return nullptr;
    recent = {bits, freed, found.value()};
    return found.value();
  }

 private:
  // No call says whether a type is committed, but a send to MPI_PROC_NULL refuses a type that is not. The count is 1,
  // because MPICH checks the type only if the count is not 0; no data is read.
  bool committed(MPI_Datatype handle) const {
    const char nothing = 0;
    return runtime().Send(&nothing, 1, handle, MPI_PROC_NULL, 0, library().resources->own_communicator()) ==
           MPI_SUCCESS;
  }

  int key() { return library().resources->datatype_key(release, this); }

  const Datatype* attribute(MPI_Datatype handle) {
    void* value = nullptr;
    int found = 0;
    runtime().Type_get_attr(handle, key(), &value, &found);
    return found ? static_cast<const Datatype*>(value) : nullptr;
  }

  Result<const Datatype*> find_or_make(MPI_Datatype handle) {
    if (handle == MPI_DATATYPE_NULL) return Error{ErrorKind::kUnsupported, "the datatype is MPI_DATATYPE_NULL"};
    if (const Datatype* const known = attribute(handle)) return known;
    // Setting the attribute twice would delete the first value while threads use it. release() does not take this lock.
    const std::lock_guard lock(making_);
    if (const Datatype* const known = attribute(handle)) return known;
    if (!committed(handle))
      return Error{ErrorKind::kUnsupported, "the datatype is not committed (MPI_Type_commit), or not valid"};
    Result<Datatype> made = flatten(handle);
    if (!made) return made.error();
    auto datatype = std::make_unique<Datatype>(std::move(made.value()));
    if (runtime().Type_set_attr(handle, key(), datatype.get()) != MPI_SUCCESS)
      return Error{ErrorKind::kOther, "the runtime refused an attribute on the datatype"};
    return datatype.release();
  }

  static int release(MPI_Datatype, int, void* value, void* owner) {
    static_cast<Datatypes*>(owner)->freed_.fetch_add(1, std::memory_order_release);
    delete static_cast<Datatype*>(value);
    return MPI_SUCCESS;
  }

  const std::vector<PredefinedType> predefined_ = make_predefined_types();
  std::mutex making_;
  std::atomic<std::uint64_t> freed_{0};
};

constinit PredefinedTable predefined_table;

bool PredefinedTable::place(const PredefinedType& type) {
  const std::uintptr_t bits = key_of_handle(type.handle);
  Slot& slot = slots_[slot_of(bits)];
  if (slot.datatype != nullptr) return slot.bits == bits;
  slot = {bits, &type.datatype, type.datatype.contiguous ? type.datatype.size : 0};
  return true;
}

void PredefinedTable::fill(std::span<const PredefinedType> types) {
  while (!std::all_of(types.begin(), types.end(), [&](const PredefinedType& type) { return place(type); })) {
    slots_.fill({});
    multiplier_ = multiplier_ * 6364136223846793005u + 1442695040888963407u;  // any series serves
  }
}

void prepare_datatypes() { *library().datatypes; }

const Datatype* find_datatype(MPI_Datatype handle, Error* why) {
  Datatypes& datatypes = *library().datatypes;
  if (const Datatype* const predefined = predefined_table.find(handle)) return predefined;
  return datatypes.find_derived(handle, why);
}

}  // namespace farside::pmpi
