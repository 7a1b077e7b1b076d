// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/staged_buffer.hpp"

#include <algorithm>
#include <cstdint>

#include "transport/base/integers.hpp"
#include "transport/data/layout.hpp"
#include "transport/node/device_memory.hpp"

namespace farside::pmpi {

const Datatype* StagedBuffer::type_on_device(const LocalBuffer& buffer) {
  if (buffer.count <= 0) return nullptr;
  const Datatype* const type = find_datatype(buffer.type);
  if (type == nullptr || type->size == 0 || !bytes_of(static_cast<std::size_t>(buffer.count), type->size))
    return nullptr;
  const std::ptrdiff_t first = type->contiguous ? 0 : type->layout->true_lower_bound();
  return DeviceMemory::instance().holds(static_cast<const std::byte*>(buffer.address) + first) ? type : nullptr;
}

StagedBuffer::StagedBuffer(const LocalBuffer& device, const Datatype& type) : device_(device), type_(type) {
  const auto count = static_cast<std::ptrdiff_t>(device.count);
  if (type.contiguous) {
    bytes_ = static_cast<std::size_t>(count) * type.size;
    return;
  }
  const std::ptrdiff_t stretch = (count - 1) * type.layout->extent();
  first_ = type.layout->true_lower_bound() + std::min<std::ptrdiff_t>(stretch, 0);
  const std::ptrdiff_t last = type.layout->true_upper_bound() + std::max<std::ptrdiff_t>(stretch, 0);
  bytes_ = static_cast<std::size_t>(last - first_);
}

Status StagedBuffer::make() {
  copy_ = DeviceStaging::instance().take(bytes_, at(device_.address, first_));
  if (copy_ != nullptr) return {};
  return Error{ErrorKind::kNoMemory, fmt::format("no memory for a copy of {} bytes of a GPU's memory", bytes_)};
}

Status StagedBuffer::fetch() { return DeviceMemory::instance().copy(copy_.get(), at(device_.address, first_), bytes_); }

Status StagedBuffer::store() {
  DeviceMemory& memory = DeviceMemory::instance();
  if (type_.contiguous) return memory.copy(device_.address, copy_.get(), bytes_);
  const auto flat = Layout::basic(BasicType::kByte);
  ByteFragments fragments(*type_.layout, static_cast<std::size_t>(device_.count), *flat,
                          static_cast<std::size_t>(device_.count) * type_.size);
  for (ByteFragment fragment; fragments.next(fragment);) {
    const std::byte* const from = copy_.get() + (fragment.origin_offset - first_);
    if (Status done = memory.copy(at(device_.address, fragment.origin_offset), from, fragment.bytes); !done)
      return done;
  }
  return {};
}

// The address of the copy may be outside of the address space, as only its sums with offsets of the data are used.
LocalBuffer StagedBuffer::on_host() const { return {at(copy_.get(), -first_), device_.count, device_.type}; }

std::byte* StagedBuffer::at(const void* base, std::ptrdiff_t offset) const {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

}  // namespace farside::pmpi
