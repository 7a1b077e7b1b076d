// SPDX-License-Identifier: BSD-3-Clause
// MPI_Datatype translated for the layers below. A predefined type is found in a table in a few ns; a derived type is
// flattened once, through envelope and contents, and the result is an attribute of the type that dies with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
// operation looks here first.
class PredefinedTable {
 public:
  // Null for all other types.
  const Datatype* find(MPI_Datatype handle) const {
    const std::uintptr_t bits = bits_of(handle);
    for (std::size_t slot = slot_of(bits);; slot = (slot + 1) % kSlots) {
      if (slots_[slot].bits == bits) return slots_[slot].datatype;
      if (slots_[slot].datatype == nullptr) return nullptr;
    }
  }
  // Of several names for one handle the first stays.
  void insert(MPI_Datatype handle, const Datatype* datatype);

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
  };
  // About a quarter of the slots is used.
  static constexpr std::size_t kSlotBits = 8;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;

  static std::size_t slot_of(std::uintptr_t bits) {
    return static_cast<std::size_t>((bits * 0x9e3779b97f4a7c15u) >> (64 - kSlotBits));  // Fibonacci hashing
  }

  std::array<Slot, kSlots> slots_{};
};
extern constinit PredefinedTable predefined_table;

// At the first window, and before any of the calls below, if there is none. MPI must be initialized.
void prepare_datatypes();

// The translation, or null for MPI_DATATYPE_NULL, types that are not committed, and what farside cannot translate (datatype_error says which).
// Valid until the type is freed; an operation that outlives the call keeps a copy of `layout`. MPI must be
// initialized. Any thread may call it.
const Datatype* find_datatype(MPI_Datatype handle);

// Why find_datatype(handle) was null, in a sentence. For error paths: it may translate once more.
Error datatype_error(MPI_Datatype handle);

}  // namespace farside::pmpi
