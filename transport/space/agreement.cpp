// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/agreement.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "transport/base/integers.hpp"
#include "transport/process.hpp"

namespace farside {
namespace {

constexpr int kFailureBits = 64 - Agreement::kFlags;  // of the first word: one per ErrorKind
static_assert(static_cast<int>(ErrorKind::kConflict) < kFailureBits);

// What must agree: version 8 bits, routes 3, whether there are logs of FARSIDE_CHECK=strict 1 (each window then has a
// second space), the provider's name 20.
constexpr std::uint32_t kVersionMask = 0xff;
std::uint32_t settings_word(const Settings& settings) {
  static_assert(kRouteKinds == 1 + 3);
  const std::uint32_t routes = settings.routes >> 1;  // without self
  const std::uint32_t strict = settings.check == Check::kStrict ? 1U : 0U;
  return (static_cast<std::uint32_t>(fnv1a(settings.provider)) & ~0xfffU) | strict << 11 | routes << 8 |
         Agreement::kProtocol;
}

std::uint64_t failure_bit(const Status& status) {
  return status ? 0 : std::uint64_t{1} << (Agreement::kFlags + static_cast<int>(status.error().kind));
}

}  // namespace

Status Agreement::combine(std::span<std::uint64_t> words) {
  return peers_ != nullptr ? peers_->combine(words, Process::instance()) : group_.combine(words);
}

// All ranks act according to the kind, so the kind is the same on all ranks; the text may be that of this rank's own
// error.
Error Agreement::explain(const Status& own, ErrorKind kind) {
  const bool mine = !own && own.error().kind == kind;
  int lowest = mine ? rank() : std::numeric_limits<int>::max();
  if (Status carried = group_.take_lowest(lowest); !carried) return carried.error();
  std::array<char, 512> text{};
  if (rank() == lowest) own.error().text.copy(text.data(), text.size() - 1);
  if (Status carried = group_.broadcast(std::as_writable_bytes(std::span(text)), lowest); !carried)
    return carried.error();
  if (mine) return own.error();
  return Error{kind, fmt::format("rank {}: {}", lowest, text.data())};
}

Result<std::uint64_t> Agreement::handshake(const Status& own) {
  const std::uint32_t word = own ? settings_word(*Process::instance().settings().value()) : kProtocol;
  std::array<std::uint64_t, 3> all{failure_bit(own), pair(word), rank() == 0 ? random_bits() : 0};
  if (Status carried = combine(all); !carried) return carried.error();
  const std::uint64_t failures = all[0] >> kFlags;
  if (failures != 0) return explain(own, static_cast<ErrorKind>(std::countr_zero(failures)));
  if (is_equal(all[1])) return all[2];
  // The ranks that differ from rank 0 say so.
  std::uint32_t first = word;
  if (Status carried = group_.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0); !carried)
    return carried.error();
  Status differs;
  if ((first & kVersionMask) != (word & kVersionMask)) {
    differs = Error{ErrorKind::kBadSetting,
                    fmt::format("this rank runs another version of farside than rank 0: protocol {}, and rank 0 {}; "
                                "load the same library on every rank",
                                word & kVersionMask, first & kVersionMask)};
  } else if (first != word) {
    differs = Error{ErrorKind::kBadSetting,
                    "this rank has other values of FARSIDE_ROUTES, FARSIDE_PROVIDER or "
                    "FARSIDE_CHECK=strict than rank 0; they must agree"};
  }
  return explain(differs, ErrorKind::kBadSetting);
}

Result<Agreement::Combined> Agreement::agree(const Status& own, std::uint64_t flags, const Words& words) {
  std::array<std::uint64_t, kWords + 1> all{failure_bit(own) | flags};
  std::copy(words.begin(), words.end(), all.begin() + 1);
  if (Status carried = combine(all); !carried) return carried.error();
  const std::uint64_t failures = all[0] >> kFlags;
  if (failures != 0) return explain(own, static_cast<ErrorKind>(std::countr_zero(failures)));
  Combined combined{all[0], {}};
  std::copy(all.begin() + 1, all.end(), combined.words.begin());
  return combined;
}

}  // namespace farside
