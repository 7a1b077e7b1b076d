// SPDX-License-Identifier: BSD-3-Clause
// MPI_Datatype translated for the layers below. A predefined type is found in a table in a few ns; a derived type is
// flattened once, through envelope and contents, and the result is an attribute of the type that dies with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include <mpi.h>

#include "transport/base/result.hpp"
#include "transport/data/basic_type.hpp"
#include "transport/data/layout.hpp"

namespace farside::pmpi {

struct Datatype {
  std::shared_ptr<const Layout> layout;
  std::optional<BasicType> basic;  // set for predefined types, named or from MPI_Type_create_f90_*
  std::size_t size = 0;            // bytes of data, as MPI_Type_size_x
  std::ptrdiff_t extent = 0;       // as MPI_Type_get_extent
  bool contiguous = false;         // count elements are count * size bytes from the buffer's address on
};

// The predefined types by handle. Filled before there is a window (prepare_datatypes), and constant from then on: every
// operation looks here first. Hashed without collisions, so that a look is one comparison.
class PredefinedTable {
 public:
  // Null for all other types.
  const Datatype* find(MPI_Datatype handle) const {
    const Slot& slot = slots_[slot_of(bits_of(handle))];
    return slot.bits == bits_of(handle) ? slot.datatype : nullptr;
  }
  // The bytes of one element, or 0 if the type is another one, or elements of it in a row have gaps.
  std::size_t plain_size(MPI_Datatype handle) const {
    const Slot& slot = slots_[slot_of(bits_of(handle))];
    return slot.bits == bits_of(handle) ? slot.plain_size : 0;
  }
  // Once. Of several names for one handle the first stays.
  struct Named {
    MPI_Datatype handle;
    const Datatype* datatype;
  };
  void fill(std::span<const Named> types);

  // A handle is an int (MPICH) or a pointer (Open MPI).
  template <class Handle>
  static std::uintptr_t bits_of(Handle handle) {
    if constexpr (std::is_pointer_v<Handle>) {
      return reinterpret_cast<std::uintptr_t>(handle);
    } else {
      return static_cast<unsigned>(handle);
    }
  }

 private:
  struct Slot {
    std::uintptr_t bits = 0;
    const Datatype* datatype = nullptr;
    std::size_t plain_size = 0;
  };
  // Some ten times as many slots as there are types: every 55th multiplier or so has no collisions.
  static constexpr std::size_t kSlotBits = 10;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;

  std::size_t slot_of(std::uintptr_t bits) const {
    return static_cast<std::size_t>((bits * multiplier_) >> (64 - kSlotBits));
  }
  bool place(const Named& type);

  std::uint64_t multiplier_ = 0x9e3779b97f4a7c15u;
  std::array<Slot, kSlots> slots_{};
};
extern constinit PredefinedTable predefined_table;

// At the first window, and before any of the calls below, if there is none. MPI must be initialized.
void prepare_datatypes();

// The translation, or null for MPI_DATATYPE_NULL, types that are not committed, and what farside cannot translate
// (datatype_error says which). Valid until the type is freed; an operation that outlives the call keeps a copy of
// `layout`. MPI must be initialized. Any thread may call it.
const Datatype* find_datatype(MPI_Datatype handle);

// Why find_datatype(handle) was null, in a sentence. For error paths: it may translate once more.
Error datatype_error(MPI_Datatype handle);

}  // namespace farside::pmpi
