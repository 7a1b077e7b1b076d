// SPDX-License-Identifier: BSD-3-Clause
// Operations whose local buffers are in the memory of a GPU (transport/node/device_memory.hpp): they use copies in the
// memory of the host, and are complete when the call returns.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "pmpi/window/calls.hpp"
#include "pmpi/window/strict_calls.hpp"
#include "transport/data/layout.hpp"
#include "transport/fabric/pending.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

std::byte* at(const void* base, std::ptrdiff_t offset) {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
}

// Whether the CPU must not touch the first byte of the buffer.
bool is_on_device(const LocalBuffer& buffer, const Datatype& type) {
  return Process::instance().device_memory().holds(
      at(buffer.address, type.contiguous ? 0 : type.layout->true_lower_bound()));
}

// Such a buffer, and its copy in the memory of the host.
class StagedBuffer {
 public:
  StagedBuffer(const LocalBuffer& device, const Datatype& type) : device_(device), type_(type) {
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
  // Takes memory for the copy: kNoMemory. If the operation reads the buffer, copies all bytes from the first to the
  // last one, gaps included, to the host.
  Status make(bool read) {
    copy_ = Process::instance().device_staging().take(bytes_, at(device_.address, first_));
    if (copy_ == nullptr)
      return Error{ErrorKind::kNoMemory, fmt::format("no memory for a copy of {} bytes of a GPU's memory", bytes_)};
    return read ? Process::instance().device_memory().copy(copy_.get(), at(device_.address, first_), bytes_) : Status();
  }
  // Copies the bytes of the data to the GPU, and leaves its gaps as they are.
  Status store() {
    DeviceMemory& memory = Process::instance().device_memory();
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
  // The copy, in the place of the buffer. Valid as long as this object. Its address may be outside of the address
  // space, as only its sums with offsets of the data are used.
  LocalBuffer on_host() const { return {at(copy_.get(), -first_), device_.count, device_.type}; }

 private:
  LocalBuffer device_;
  Datatype type_;
  std::ptrdiff_t first_ = 0;  // byte of the buffer, from its address
  std::size_t bytes_ = 0;
  DeviceStaging::Memory copy_;
};

}  // namespace

std::optional<Outcome> Calls::stage(const CheckedOperation& operation) {
  const RemoteBuffer& target = operation.target;
  CheckedOperation staged = operation;
  LocalBuffer compare{const_cast<void*>(operation.compare), 1, target.type};
  LocalBuffer result = operation.result != nullptr ? *operation.result : LocalBuffer{};
  const bool get = operation.call == Counted::kGet;
  struct Side {
    LocalBuffer* buffer;
    const Datatype* type;  // null: the operation has no such buffer
    bool read;
    std::shared_ptr<StagedBuffer> copy = {};
  };
  std::array<Side, 3> sides{
      {{&staged.origin, operation.reads_origin || get ? operation.origin_type : nullptr, operation.reads_origin},
       {&compare, operation.compare != nullptr ? operation.target_type : nullptr, true},
       {&result, operation.result != nullptr ? operation.result_type : nullptr, false}}};
  bool any = false;
  for (Side& side : sides) {
    if (side.type == nullptr || !is_on_device(*side.buffer, *side.type)) continue;
    any = true;
    side.copy = std::make_shared<StagedBuffer>(*side.buffer, *side.type);
    if (Status made = side.copy->make(side.read); !made) return made;
    *side.buffer = side.copy->on_host();
  }
  if (!any) return std::nullopt;
  staged.compare = compare.address;
  if (operation.result != nullptr) staged.result = &result;
  Outcome done = execute_on_host(staged);
  if (!done) {
    // Parts of the operation may be under way, and use its copies.
    (void)window_.space->flush_all();
    return done;
  }
  Status complete = window_.space->route(target.rank).flush(target.rank);
  for (Side& side : sides) {
    if (side.copy == nullptr) continue;
    // The call that completes the request reports its error.
    const bool has_failed = target.own != nullptr && target.own->has_error();
    if (complete && !side.read && !has_failed) complete = side.copy->store();
    if (strict_ != nullptr) strict_->keep(std::move(side.copy));
  }
  return complete;
}

}  // namespace farside::pmpi
