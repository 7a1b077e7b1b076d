// SPDX-License-Identifier: BSD-3-Clause
// Prints the tables of MPI's epoch rules, as epoch_table.hpp has them, in Markdown: behind rules.in they are rules.md.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "epochs/rules/epoch_table.hpp"

namespace {

using namespace farside::epochs;

// The states in the order of the enumerators; "open" is kFenceOpen, "all" is kLockedAll.
const std::vector<std::string> kAccessNames = {"none",    "open",   "active",      "starting",
                                               "started", "locked", "locking all", "all"};
const std::vector<std::string> kExposureNames = {"none", "fence", "posting", "posted", "waiting"};
std::string name(Access state) { return kAccessNames[static_cast<std::size_t>(state)]; }
std::string name(Exposure state) { return kExposureNames[static_cast<std::size_t>(state)]; }

// The number of each rule: the order in which the tables first mention it.
std::vector<const Violation*> numbered;

std::string number_of(const Violation* rule) {
  const auto found = std::ranges::find(numbered, rule);
  const auto index = found - numbered.begin();
  if (found == numbered.end()) numbered.push_back(rule);
  return std::to_string(index + 1);
}

template <class State>
std::string shown(const Cell<State>& cell, State column) {
  using Kind = typename Cell<State>::Kind;
  using Broken = typename Cell<State>::Broken;
  const auto refers = [&] {
    const std::string number = number_of(cell.rule);
    if (cell.broken == Broken::kEnds) return "**" + number + "**";
    return cell.broken == Broken::kKeeps ? number : number + ": " + name(cell.next);
  };
  const std::string to = cell.next == column ? "same" : name(cell.next);
  switch (cell.kind) {
    case Kind::kStay: return "same";
    case Kind::kGo: return to;
    case Kind::kRefuse: return refers();
    case Kind::kIfMember:
    case Kind::kIfNotMember: return "same or " + refers();
    case Kind::kLeave: return "same, last: none, or " + refers();
    case Kind::kFence: return to + (cell.rule == nullptr ? "" : " or " + refers());
  }
  return "";
}

template <class State>
void print_table(const std::vector<std::string>& columns, const std::vector<Call>& calls) {
  std::string header = "\n| call |";
  std::string line = "|---|";
  for (const std::string& column : columns) {
    header += " " + column + " |";
    line += "---|";
  }
  std::printf("%s\n%s\n", header.c_str(), line.c_str());
  for (const Call call : calls) {
    std::string row = "| " + std::string(call_name(call)) + " |";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto state = static_cast<State>(i);
      row += " " + shown(cell(call, state), state) + " |";
    }
    std::printf("%s\n", row.c_str());
  }
}

const char* error_name(ErrorClass error) {
  switch (error) {
    case ErrorClass::kAssert: return "MPI_ERR_ASSERT";
    case ErrorClass::kRank: return "MPI_ERR_RANK";
    case ErrorClass::kGroup: return "MPI_ERR_GROUP";
    default: return "MPI_ERR_RMA_SYNC";
  }
}

void print_rules() {
  // Rules that no cell mentions.
  for (const Violation* rule : {&rules::kBadTarget, &rules::kBadGroup, &rules::kNoPut, &rules::kStillLocking})
    number_of(rule);
  std::puts("");
  for (const Violation* rule : numbered) {
    std::string text = number_of(rule) + ". " + rule->what + ": " + rule->advice + ". `" + error_name(rule->error) +
                       "`, " + rule->section;
    if (const std::string why = rule->ends; !why.empty()) text += "; *ends*: " + why;
    std::printf("%s\n", text.c_str());
  }
}

}  // namespace

int main() {
  std::vector<Call> access;
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto call = static_cast<Call>(i);
    if (call != Call::kWait && call != Call::kTest) access.push_back(call);  // these concern the exposure side only
  }
  print_table<Access>(kAccessNames, access);
  print_table<Exposure>(kExposureNames,
                        {Call::kFence, Call::kPost, Call::kWait, Call::kTest, Call::kLockAll, Call::kFree});
  print_rules();
}
