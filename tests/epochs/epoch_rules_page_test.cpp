// SPDX-License-Identifier: BSD-3-Clause
// rules.md of epochs shows the tables and the rules as they are in the code.
#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/epochs/epoch_states.hpp"

namespace farside::epoch_rules_page_test {

using namespace farside::epochs;
using namespace farside::epochs::testing;

namespace {

template <class State>
std::string shown(const Cell<State>& cell, State column, std::map<Rule, int>& numbers) {
  using Kind = typename Cell<State>::Kind;
  const auto refers = [&](Rule rule) {
    const auto next = static_cast<int>(numbers.size()) + 1;
    const std::string number = std::to_string(numbers.emplace(rule, next).first->second);
    if (cell.broken == Cell<State>::Broken::kEnds) return "**" + number + "**";
    return cell.broken == Cell<State>::Broken::kKeeps ? number : number + ": " + name(cell.next);
  };
  const std::string to = cell.next == column ? "same" : name(cell.next);
  switch (cell.kind) {
    case Kind::kGo:
      return to;
    case Kind::kRefuse:
      return refers(cell.rule);
    case Kind::kIfMember:
      return to + " or " + refers(cell.rule);
    case Kind::kIfNotMember:
      return to + " or " + refers(cell.rule);
    case Kind::kLeave:
      return to + ", last: none, or " + refers(cell.rule);
    case Kind::kFence:
      return to + (cell.rule == Rule::kNone ? "" : " or " + refers(cell.rule));
  }
  return "";
}

std::string shown_row(Call call, bool access, std::map<Rule, int>& numbers) {
  std::string row = "| " + std::string(call_name(call)) + " |";
  for (std::size_t i = 0; i < (access ? kAccessStates : kExposureStates); ++i)
    row += " " +
           (access ? shown(cell(call, static_cast<Access>(i)), static_cast<Access>(i), numbers)
                   : shown(cell(call, static_cast<Exposure>(i)), static_cast<Exposure>(i), numbers)) +
           " |";
  return row + "\n";
}

}  // namespace

TEST_CASE("rules.md shows the tables and the rules as they are in the code", "[epochs]") {
  std::map<Rule, int> numbers;
  std::string expected =
      "| call | none | open | active | starting | started | locked | locking all | all "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto call = static_cast<Call>(i);
    if (call == Call::kWait || call == Call::kTest) continue;  // the access side does not concern these
    expected += shown_row(call, true, numbers);
  }
  expected += "\n| call | none | fence | posting | posted | waiting |\n|---|---|---|---|---|---|\n";
  for (const Call call : {Call::kFence, Call::kPost, Call::kWait, Call::kTest, Call::kLockAll, Call::kFree})
    expected += shown_row(call, false, numbers);
  for (const Rule rule : {Rule::kBadTarget, Rule::kBadGroup, Rule::kNoPut, Rule::kStillLocking})
    numbers.emplace(rule, static_cast<int>(numbers.size()) + 1);
  std::map<int, Rule> by_number;
  for (const auto& [rule, number] : numbers) by_number[number] = rule;
  expected += "\n";
  for (const auto& [number, rule] : by_number) {
    const Violation& v = violation(rule);
    const char* error = v.error == ErrorClass::kRmaSync  ? "MPI_ERR_RMA_SYNC"
                        : v.error == ErrorClass::kAssert ? "MPI_ERR_ASSERT"
                        : v.error == ErrorClass::kRank   ? "MPI_ERR_RANK"
                                                         : "MPI_ERR_GROUP";
    const std::string section = std::string(v.section).substr(std::string("MPI 4.0 section ").size());
    expected += std::to_string(number) + ". " + v.what + ": " + v.advice + ". `" + error + "`, " +
                section.substr(0, section.find(' '));
    if (const std::string why = why_it_ends(rule); !why.empty()) expected += "; *ends*: " + why;
    expected += "\n";
  }
  std::ifstream file(FARSIDE_SOURCE_DIR "/epochs/rules.md");
  std::stringstream page;
  page << file.rdbuf();
  INFO("rules.md should contain:\n" << expected);
  CHECK(page.str().find(expected) != std::string::npos);
}

}  // namespace farside::epoch_rules_page_test
