// SPDX-License-Identifier: BSD-3-Clause
// A Space among processes: what the tests of a Space share. Each runs on every way to a peer's memory.
//
//   for (const Variant variant : kAllVariants) {
//     INFO(name(variant));
//     expect_well(run_world(2, variant, 4096, [&](Ranks& ranks, World& world) {
//       world.good(world->put(1 - ranks.rank(), 0, &word, 8), "put");
//       ...
//     }));
//   }
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/transport/elements.hpp"
#include "tests/transport/processes.hpp"
#include "tests/transport/space_steps.hpp"
#include "transport/space/control_memory.hpp"
#include "transport/space/space.hpp"

namespace farside::testing {

using Clock = std::chrono::steady_clock;

enum class Variant { kMapped, kCma, kFabric, kFabricPrivate };
constexpr Variant kAllVariants[] = {Variant::kMapped, Variant::kCma, Variant::kFabric, Variant::kFabricPrivate};
constexpr Variant kFabricVariants[] = {Variant::kFabric, Variant::kFabricPrivate};

const char* name(Variant variant);
inline bool over_fabric(Variant variant) { return variant != Variant::kMapped && variant != Variant::kCma; }
inline bool on_private(Variant variant) { return variant == Variant::kCma || variant == Variant::kFabricPrivate; }

constexpr std::size_t kControlBytes = 4096;

// Of the ways over the fabric: tcp, or FARSIDE_TEST_PROVIDER.
const char* test_provider();

// Sets this process's settings, before its first Space.
void use_routes(const char* routes, const char* provider = test_provider());

// One rank's end of a Space, with the steps of space.hpp.
class World {
 public:
  // Private data begins `misaligned` bytes behind a multiple of 64, or ends with its page and nothing behind.
  static constexpr std::size_t kAtPageEnd = SIZE_MAX;
  World(Ranks& ranks, Variant variant, std::size_t bytes, std::size_t misaligned = 0);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();
  Space& operator*() { return *space_; }
  Space* operator->() { return space_.get(); }
  // Fails with the status's own words if it is not well.
  void good(const Status& status, std::string_view what, Line line = Line::here());

 private:
  Ranks& ranks_;
  std::vector<std::byte> private_;
  std::unique_ptr<Space> space_;
};

// With FARSIDE_TEST_VARIANT, names of ways separated by commas, nothing is done on the others. Tests that need the
// kernel itself, and no emulation of it (process_vm_readv, limits of an address space), have the tag [native]. A
// child's whole program; afterwards its endpoint is closed in good order. Returns what run_processes() does.
std::string run_world(int size, Variant variant, std::size_t bytes, const std::function<void(Ranks&, World&)>& program,
                      std::size_t misaligned = 0);

// How often that was done by this route in this process.
std::uint64_t counted(RouteKind route, Counted what);

// Waits for the end of a control operation, good or not.
void await(World& world, ControlMemory::Operation& operation);

// What others have put there.
template <class T>
T read_data(World& world, std::uint64_t offset) {
  std::array<std::byte, sizeof(T)> bytes;
  read_memory(world->data() + offset, bytes.data(), sizeof(T));
  return std::bit_cast<T>(bytes);
}

}  // namespace farside::testing
