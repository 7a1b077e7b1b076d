// SPDX-License-Identifier: BSD-3-Clause
#include "transport/space/origin_lock.hpp"

#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>

using farside::OriginLockWord;

namespace {

std::uint32_t arrive(std::uint64_t& word) {
  const std::uint64_t before = word;
  word += OriginLockWord::kArrive;
  return OriginLockWord::next(before);
}

}  // namespace

TEST_CASE("tickets of the origins' lock are served one by one, in their order") {
  std::uint64_t word = 0;
  const std::uint32_t first = arrive(word), second = arrive(word), third = arrive(word);
  CHECK(OriginLockWord::ahead(word, first) == 0);
  CHECK(OriginLockWord::ahead(word, second) == 1);
  CHECK(OriginLockWord::ahead(word, third) == 2);
  word += OriginLockWord::depart(first);
  CHECK(OriginLockWord::ahead(word, second) == 0);
  CHECK(OriginLockWord::ahead(word, third) == 1);
  word += OriginLockWord::depart(second);
  word += OriginLockWord::depart(third);
  CHECK(OriginLockWord::ahead(word, arrive(word)) == 0);
}

TEST_CASE("the origins' lock survives the wrap of its counters, held and awaited") {
  constexpr std::uint64_t kNearTheEnd = 0xFFFF'FFFD;
  std::uint64_t word = kNearTheEnd << 32 | kNearTheEnd;
  std::vector<std::uint32_t> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(arrive(word));
  for (const std::uint32_t ticket : waiting) {
    CHECK(OriginLockWord::ahead(word, ticket) == 0);
    CHECK(OriginLockWord::ahead(word, waiting.back()) == waiting.back() - ticket);
    word += OriginLockWord::depart(ticket);
  }
  CHECK(OriginLockWord::next(word) == 5);
  CHECK(OriginLockWord::serving(word) == 5);
}
