// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/info_assertions.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {
namespace {

bool says_true(MPI_Info info, const char* key) {
  std::array<char, 8> value{};
  int found = 0;
  runtime().Info_get(info, key, static_cast<int>(value.size()) - 1, value.data(), &found);
  return found != 0 && std::string_view(value.data()) == "true";
}

Status check(const char* assertion, int rank, std::int64_t own, std::int64_t first) {
  if (own == first) return {};
  return Error{ErrorKind::kAssertion,
               fmt::format("{} was promised, but rank {} has {} where rank 0 has {}; leave it out of the info "
                           "(MPI 4.0 section 12.2.1)",
                           assertion, rank, own, first)};
}

}  // namespace

InfoAssertions info_assertions_in(MPI_Info info) {
  if (info == MPI_INFO_NULL) return {};
  return {says_true(info, "same_size"), says_true(info, "same_disp_unit")};
}

Status check_info_assertions(const CreationRequest& request, const InfoAssertions& broken, Group& group) {
  const std::array<std::int64_t, 2> own{request.displacement_unit, request.size};
  std::array<std::int64_t, 2> first = own;
  if (Status carried = group.broadcast(std::as_writable_bytes(std::span(first)), 0); !carried) return carried;
  if (broken.same_unit) {
    if (Status kept = check("same_disp_unit", group.rank(), own[0], first[0]); !kept) return kept;
  }
  return broken.same_size ? check("same_size", group.rank(), own[1], first[1]) : Status();
}

}  // namespace farside::pmpi
