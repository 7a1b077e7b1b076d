// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/info_assertions.hpp"

#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

namespace farside::pmpi {
namespace {

constexpr std::int32_t kSameSize = 1;
constexpr std::int32_t kSameUnit = 2;

bool says_true(MPI_Info info, const char* key) {
  std::array<char, 8> value{};
  int found = 0;
  PMPI_Info_get(info, key, static_cast<int>(value.size()) - 1, value.data(), &found);
  return found != 0 && std::string_view(value.data()) == "true";
}

template <class Value>
Status check(std::span<const RankArguments> all, const char* assertion, Value&& value) {
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (value(all[rank]) == value(all[0])) continue;
    return Error{ErrorKind::kAssertion,
                 fmt::format("{} was promised, but rank {} has {} where rank 0 has {}; leave it out of the info "
                             "(MPI 4.0 section 12.2.1)",
                             assertion, rank, value(all[rank]), value(all[0]))};
  }
  return {};
}

}  // namespace

std::int32_t info_assertions_in(MPI_Info info) {
  if (info == MPI_INFO_NULL) return 0;
  return (says_true(info, "same_size") ? kSameSize : 0) | (says_true(info, "same_disp_unit") ? kSameUnit : 0);
}

Status check_info_assertions(std::span<const RankArguments> all) {
  std::int32_t asserted = 0;
  for (const RankArguments& given : all) asserted |= given.info_assertions;
  if ((asserted & kSameUnit) != 0) {
    Status held = check(all, "same_disp_unit", [](const RankArguments& given) { return given.displacement_unit; });
    if (!held) return held;
  }
  if ((asserted & kSameSize) != 0)
    return check(all, "same_size", [](const RankArguments& given) { return given.bytes; });
  return {};
}

}  // namespace farside::pmpi
