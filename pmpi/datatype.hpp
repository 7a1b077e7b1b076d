// SPDX-License-Identifier: BSD-3-Clause
// MPI_Datatype translated for the layers below. A predefined type is found in a table in a few ns; a derived type is
// flattened once, through envelope and contents, and the result is an attribute of the type that dies with it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

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

// The translation, or null for MPI_DATATYPE_NULL, types that are not committed, and what farside cannot translate (datatype_error says which).
// Valid until the type is freed; an operation that outlives the call keeps a copy of `layout`. MPI must be
// initialized. Any thread may call it.
const Datatype* find_datatype(MPI_Datatype handle);

// Why find_datatype(handle) was null, in a sentence. For error paths: it may translate once more.
Error datatype_error(MPI_Datatype handle);

}  // namespace farside::pmpi
