// SPDX-License-Identifier: BSD-3-Clause
// What an origin must know of a rank's memory besides its address. Values; no thread safety of their own. Memory: 32
// bytes per description that is compact, else 48.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "transport/base/address.hpp"

namespace farside {

// Exchanged as bytes.
struct TargetDescription {
  RemoteKey control_key;  // of the control block, for adapter atomics
  RemoteKey data_key;
  std::uint64_t bytes = 0;  // of data
  std::uint32_t unit = 0;   // a number of the space's owner (Space::Request)
  std::uint32_t second_key = 0;  // of the data at the second rail; 0: there is none, or processes choose keys
};

// The same without a second rail, with keys of 32 bits, as those of verbs, and addresses and sizes of 48 bits, as those
// of user space on x86-64 and aarch64.
class CompactDescription {
 public:
  static bool fits(const TargetDescription& full) {
    return full.control_key.key <= kMostKey && full.data_key.key <= kMostKey && Short::fits(full.control_key.base) &&
           Short::fits(full.data_key.base) && Short::fits(full.bytes) && full.second_key == 0;
  }
  CompactDescription() = default;
  // Precondition: fits(full).
  explicit CompactDescription(const TargetDescription& full)
      : control_key_(static_cast<std::uint32_t>(full.control_key.key)),
        data_key_(static_cast<std::uint32_t>(full.data_key.key)),
        unit_(full.unit),
        control_base_(full.control_key.base),
        data_base_(full.data_key.base),
        bytes_(full.bytes) {}
  TargetDescription full() const {
    return {{control_base_.value(), control_key_}, {data_base_.value(), data_key_}, bytes_.value(), unit_, 0};
  }

 private:
  static constexpr std::uint64_t kMostKey = std::numeric_limits<std::uint32_t>::max();
  // A number of 48 bits.
  class Short {
   public:
    static bool fits(std::uint64_t value) { return value >> 48 == 0; }
    Short() = default;
    explicit Short(std::uint64_t value)
        : parts_{static_cast<std::uint16_t>(value), static_cast<std::uint16_t>(value >> 16),
                 static_cast<std::uint16_t>(value >> 32)} {}
    std::uint64_t value() const { return parts_[0] | std::uint64_t{parts_[1]} << 16 | std::uint64_t{parts_[2]} << 32; }

   private:
    std::array<std::uint16_t, 3> parts_{};
  };

  std::uint32_t control_key_ = 0, data_key_ = 0, unit_ = 0;
  Short control_base_, data_base_, bytes_;
};
static_assert(sizeof(CompactDescription) == 32);

}  // namespace farside
