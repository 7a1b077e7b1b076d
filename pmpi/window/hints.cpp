// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/window/hints.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <limits>
#include <ranges>
#include <string_view>
#include <vector>

#include "epochs/protocols/near_lock.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/integers.hpp"
#include "transport/process.hpp"

namespace farside::pmpi {
namespace {

// Returns whether each word between the commas is one of `known`.
bool all_words(std::string_view words, std::initializer_list<std::string_view> known) {
  return !words.empty() && std::ranges::all_of(std::views::split(words, ','), [&](const auto& word) {
    return std::ranges::find(known, std::string_view(word.begin(), word.end())) != known.end();
  });
}

bool is_size_up_to(std::uint64_t most, std::string_view value) {
  std::uint64_t size = 0;
  return parse_number(value, size) && size <= most;
}
bool is_boolean(std::string_view value) { return value == "true" || value == "false"; }
bool is_anything(std::string_view) { return true; }
bool is_never(std::string_view) { return false; }
bool is_size(std::string_view value) { return is_size_up_to(std::numeric_limits<std::uint64_t>::max(), value); }
bool is_near_hand_offs(std::string_view value) { return is_size_up_to(epochs::NearPlace::kMost, value); }
bool is_accumulate_ops(std::string_view value) { return value == "same_op" || value == "same_op_no_op"; }
bool is_numa(std::string_view value) { return std::ranges::find(kNumaWords, value) != std::end(kNumaWords); }
bool is_ordering(std::string_view value) { return value == "none" || all_words(value, {"rar", "raw", "war", "waw"}); }

constexpr const char* kNoncontiguous = "alloc_shared_noncontig";
constexpr const char *kSameSize = "same_size", *kSameUnit = "same_disp_unit";
constexpr const char* kOvercommit = "farside_overcommit";
constexpr const char* kNuma = "farside_numa";
constexpr const char* kNearHandOffs = "farside_near_hand_offs";
constexpr const char* kDefaultNearHandOffs = "7";
constexpr const char* kGranularity = "mpi_accumulate_granularity";
constexpr const char* kWhichOps = "which_accumulate_ops";

// The hints that are reported. Those without a default are reported only if they were given.
struct Hint {
  const char* key;
  const char* standard;  // the default in the standard, or null
  bool (*good)(std::string_view value);
  bool at_creation = false;  // it has its effect there
};
constexpr std::array<Hint, 13> kHints = {{
    {"no_locks", "false", is_boolean},
    {"accumulate_ordering", "rar,raw,war,waw", is_ordering},
    {"accumulate_ops", "same_op_no_op", is_accumulate_ops},
    {kGranularity, "0", is_size, true},
    {kSameSize, "false", is_boolean},
    {kSameUnit, "false", is_boolean},
    {"mpi_memory_alloc_kinds", "mpi,system", is_never},  // farside copies by the CPU: no memory of devices
    {kNoncontiguous, nullptr, is_never},                 // reported as it is
    {kWhichOps, nullptr, is_anything, true},
    {kNuma, nullptr, is_numa, true},
    {kNearHandOffs, kDefaultNearHandOffs, is_near_hand_offs, true},
    {"epochs_used", nullptr, is_anything},
    {"alloc_shm", nullptr, is_boolean},
}};
constexpr std::string_view kAssertions = "mpi_assert_";  // prefix of the assertions of any version of the standard

bool good(std::string_view key, std::string_view value, bool at_creation) {
  if (key.starts_with(kAssertions)) return true;
  const auto* found = std::ranges::find(kHints, key, &Hint::key);
  return found != kHints.end() && found->good(value) && (at_creation || !found->at_creation);
}

std::vector<std::string> keys_of(MPI_Info info) {
  int count = 0;
  if (info == MPI_INFO_NULL || runtime().Info_get_nkeys(info, &count) != MPI_SUCCESS) return {};
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) {
    std::array<char, MPI_MAX_INFO_KEY + 1> key{};
    if (runtime().Info_get_nthkey(info, i, key.data()) == MPI_SUCCESS) keys.emplace_back(key.data());
  }
  return keys;
}

}  // namespace

Status check_info(MPI_Info info) {
  int keys = 0;
  if (info == MPI_INFO_NULL || runtime().Info_get_nkeys(info, &keys) == MPI_SUCCESS) return {};
  return Fault{MPI_ERR_INFO, "the info object is not valid, for instance because it was freed (MPI 4.0 section 10)"};
}

bool is_true(MPI_Info info, const char* key) { return value_of(info, key) == "true"; }

bool asserts_single_elements(MPI_Info info) {
  if (info == MPI_INFO_NULL) return false;
  std::uint64_t granularity = 0;
  if (!parse_number(value_of(info, kGranularity), granularity) || granularity == 0 || granularity > sizeof granularity)
    return false;
  const std::string which = value_of(info, kWhichOps);
  return which.empty() || all_words(which, {"sum", "no_op", "cswap", "none"});
}

std::uint64_t minimum_alignment(MPI_Info info) {
  std::uint64_t alignment = 0;
  const bool given = info != MPI_INFO_NULL && parse_number(value_of(info, kMinimumAlignment), alignment);
  return given && std::has_single_bit(alignment) ? alignment : 1;
}

bool allows_overcommit(MPI_Info info) {
  const Result<const Settings*> settings = Process::instance().settings();
  return (settings && settings.value()->overcommit) || is_true(info, kOvercommit);
}

Numa numa_of(MPI_Info info) {
  const auto* const word = std::ranges::find(kNumaWords, value_of(info, kNuma));
  if (word != std::end(kNumaWords)) return static_cast<Numa>(word - kNumaWords);
  const Result<const Settings*> settings = Process::instance().settings();
  return settings ? settings.value()->numa : Numa::kFirstTouch;
}

std::uint32_t near_hand_offs(MPI_Info info) {
  const std::string given = value_of(info, kNearHandOffs);
  std::uint64_t hand_offs = 0;
  (void)parse_number(is_near_hand_offs(given) ? given : kDefaultNearHandOffs, hand_offs);
  return static_cast<std::uint32_t>(hand_offs);
}

bool has_other_hints(MPI_Info info) {
  const std::vector<std::string> keys = keys_of(info);
  return std::ranges::any_of(keys, [](const std::string& key) {
    return key != kMinimumAlignment && key != kOvercommit && key != kNearHandOffs && key != kNuma;
  });
}

bool allocates_memory(int flavor) { return flavor == MPI_WIN_FLAVOR_ALLOCATE || flavor == MPI_WIN_FLAVOR_SHARED; }

Hints::Hints(int flavor, MPI_Info info, bool contiguous, bool same_size, bool same_unit)
    : same_size_(same_size), same_unit_(same_unit) {
  for (const Hint& hint : kHints) {
    if (hint.standard != nullptr) values_[hint.key] = hint.standard;
  }
  if (flavor == MPI_WIN_FLAVOR_SHARED) values_[kNoncontiguous] = contiguous ? "false" : "true";
  if (const std::uint64_t alignment = minimum_alignment(info); alignment > 1 && allocates_memory(flavor)) {
    values_[kMinimumAlignment] = std::to_string(alignment);
  }
  take(info, true);
  if (!allocates_memory(flavor)) values_.erase(kNuma);
}

void Hints::take(MPI_Info info, bool at_creation) {
  for (const std::string& key : keys_of(info)) {
    std::string value = value_of(info, key.c_str());
    const bool untrue = value == "true" && ((key == kSameSize && !same_size_) || (key == kSameUnit && !same_unit_));
    if (!untrue && good(key, value, at_creation)) values_[key] = std::move(value);
  }
}

Status Hints::report(MPI_Info* info) const {
  if (runtime().Info_create(info) != MPI_SUCCESS) return Fault{MPI_ERR_NO_MEM, "the runtime made no info object"};
  for (const auto& [key, value] : values_) {
    if (runtime().Info_set(*info, key.c_str(), value.c_str()) != MPI_SUCCESS)
      return Fault{MPI_ERR_NO_MEM, "the runtime took no more info"};
  }
  return {};
}

}  // namespace farside::pmpi
