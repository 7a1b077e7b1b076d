// SPDX-License-Identifier: BSD-3-Clause
// A buffer of an operation that is in the memory of a GPU, and its copy in the memory of the host, which the operation
// uses instead. Thread safety: one thread.
#pragma once

#include <cstddef>

#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/window/window.hpp"
#include "transport/base/result.hpp"
#include "transport/node/device_memory.hpp"

namespace farside::pmpi {

class StagedBuffer {
 public:
  // The datatype of the buffer if the CPU must not touch its first byte; else null, also where the buffer is not valid.
  static const Datatype* type_on_device(const LocalBuffer& buffer);

  // `type`: that of the buffer.
  StagedBuffer(const LocalBuffer& device, const Datatype& type);
  // Takes memory for the copy: kNoMemory.
  Status make();
  // Copies all bytes from the first to the last one of the buffer, gaps included, to the host.
  Status fetch();
  // Copies the bytes of the data to the GPU, and leaves its gaps as they are.
  Status store();
  // The copy, in the place of the buffer. Valid as long as this object.
  LocalBuffer on_host() const;

 private:
  std::byte* at(const void* base, std::ptrdiff_t offset) const;

  LocalBuffer device_;
  Datatype type_;
  std::ptrdiff_t first_ = 0;  // byte of the buffer, from its address
  std::size_t bytes_ = 0;
  DeviceStaging::Memory copy_;
};

}  // namespace farside::pmpi
