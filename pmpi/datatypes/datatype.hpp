// SPDX-License-Identifier: BSD-3-Clause
// Translates MPI_Datatype for the layers below. A predefined type is found in a table in a few ns. A derived type is
// flattened once, from its envelope and contents; the result is an attribute of the type and is deleted with the type.
//
// Thread safety: any thread may call the functions; only prepare_datatypes() must have returned first.
// Cost: no remote operation. An attribute look-up takes some 50 ns; each thread caches its last derived type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mpi.h>

#include "pmpi/library/handle_table.hpp"
#include "transport/base/result.hpp"
#include "transport/data/layout.hpp"
#include "transport/data/reduce_op.hpp"

namespace farside::pmpi {

struct Datatype {
  explicit Datatype(std::shared_ptr<const Layout> of, std::optional<BasicType> type = {})
      : layout(std::move(of)),
        basic(type),
        size(layout->size()),
        extent(layout->extent()),
        contiguous(layout->contiguous()) {}

  std::shared_ptr<const Layout> layout;
  std::optional<BasicType> basic;  // set for predefined types, named or from MPI_Type_create_f90_*
  std::size_t size;                // bytes of data, as MPI_Type_size_x
  std::ptrdiff_t extent;           // as MPI_Type_get_extent
  bool contiguous;                 // `count` elements occupy count * size bytes from the buffer's address on
};

struct PredefinedType {
  MPI_Datatype handle;
  Datatype datatype;
};
// Returns all predefined types that exist in this runtime and have a counterpart. None is MPI_DATATYPE_NULL; several
// names may share a handle. MPI must be initialized.
std::vector<PredefinedType> make_predefined_types();

// The predefined types by handle: the first table that every operation searches. Filled before the first window
// (prepare_datatypes) and constant from then on. The hash has no collisions, so a look-up is one comparison.
class PredefinedTable {
 public:
  // Returns null for all other types.
  const Datatype* find(MPI_Datatype handle) const {
    const Slot& slot = slots_[slot_of(key_of_handle(handle))];
    return slot.bits == key_of_handle(handle) ? slot.datatype : nullptr;
  }
  // Returns the bytes of one element; 0 if the type is not in the table, or if consecutive elements have gaps.
  std::size_t plain_size(MPI_Datatype handle) const {
    const Slot& slot = slots_[slot_of(key_of_handle(handle))];
    if (slot.bits == key_of_handle(handle)) [[likely]]
      return slot.plain_size;
    return 0;
  }
  // Fills the table; call it once. Of several names for one handle the first is kept.
  void fill(std::span<const PredefinedType> types);

 private:
  struct Slot {
    std::uintptr_t bits = 0;
    const Datatype* datatype = nullptr;
    std::size_t plain_size = 0;
  };
  // There are some ten times as many slots as types; about one multiplier in 55 has no collisions.
  static constexpr std::size_t kSlotBits = 10;
  static constexpr std::size_t kSlots = std::size_t{1} << kSlotBits;

  std::size_t slot_of(std::uintptr_t bits) const {
    return static_cast<std::size_t>((bits * multiplier_) >> (64 - kSlotBits));
  }
  bool place(const PredefinedType& type);

  std::uint64_t multiplier_ = 0x9e3779b97f4a7c15u;
  std::array<Slot, kSlots> slots_{};
};
extern constinit PredefinedTable predefined_table;

// Fills the table. Called at the first window. MPI must be initialized.
void prepare_datatypes();

// Returns the translation, or null, and `why`, for MPI_DATATYPE_NULL, a type that is not committed, and a type that
// farside cannot translate: kUnsupported or kOther. The result is valid until the type is freed; an operation that
// outlives the call keeps a copy of `layout`. MPI must be initialized.
const Datatype* find_datatype(MPI_Datatype handle, Error* why = nullptr);

// Translates any type but MPI_DATATYPE_NULL, recursively and without a cache. Call it after prepare_datatypes().
// Error kUnsupported: an unknown combiner or predefined type, or bounds beyond 2^63 bytes.
Result<Datatype> flatten(MPI_Datatype handle);

// Returns the predefined operation of a handle; nothing for MPI_OP_NULL and user-defined operations, which the
// accumulate family does not accept (MPI 4.0 section 12.3.4). find_reduce_op() compares with MPI_SUM first.
std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op);
inline std::optional<ReduceOp> find_reduce_op(MPI_Op op) {
  return op == MPI_SUM ? ReduceOp::kSum : find_reduce_op_in_list(op);
}

// MPI 4.0 section 12.3.4 allows C integer, Fortran integer, logical, multi-language types and byte. MPI_CHAR is none of
// them, but both runtimes accept it (datatype.cpp). MPI_CHARACTER is accepted likewise.
inline bool can_compare_and_swap(BasicType type) {
  return type <= BasicType::kUint64 || type == BasicType::kByte || type == BasicType::kCharacter ||
         (type >= BasicType::kLogical1 && type <= BasicType::kLogical8);
}

}  // namespace farside::pmpi
