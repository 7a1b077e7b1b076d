// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench_driver/variant.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace farside::tools {
namespace {

using Kind = Variant::Kind;

constexpr auto kVariants = std::to_array<Variant>({
    {"native", "native", "the runtime by itself", Kind::kNative},
    {"sm", "native osc/sm", "Open MPI's shared memory", Kind::kNative, "sm"},
    {"rdma", "native osc/rdma", "Open MPI's RDMA", Kind::kNative, "rdma"},
    {"ucx", "native osc/ucx", "Open MPI over UCX", Kind::kNative, "ucx"},
    {"pt2pt", "native osc/pt2pt", "Open MPI over its messages", Kind::kNative, "pt2pt"},
    {"node", "farside", "farside with its defaults: mapped memory within a node", Kind::kNode},
    {"unchecked", "farside, unchecked", "as node, with FARSIDE_CHECK=off", Kind::kUnchecked},
    {"fabric", "farside over {}", "farside, forced over libfabric", Kind::kFabric},
});

}  // namespace

std::string Variant::full_title(const std::string& provider) const {
  return fmt::format(fmt::runtime(title), provider);
}

Variables Variant::component_variables() const {
  Variables variables;
  if (component.empty()) return variables;
  variables.emplace_back("OMPI_MCA_osc", component);
  if (component == "ucx") {
    // osc/ucx needs UCX's pml. Without a NIC both refuse to run unless any device is allowed.
    variables.emplace_back("OMPI_MCA_pml", "ucx");
    variables.emplace_back("OMPI_MCA_opal_common_ucx_tls", "any");
    variables.emplace_back("OMPI_MCA_opal_common_ucx_devices", "any");
  }
  return variables;
}

std::span<const Variant> all_variants() { return kVariants; }

std::vector<const Variant*> variants_named(const std::vector<std::string>& keys) {
  std::vector<const Variant*> result;
  for (const Variant& variant : kVariants) {
    if (std::ranges::find(keys, variant.key) != keys.end()) result.push_back(&variant);
  }
  return result;
}

}  // namespace farside::tools
