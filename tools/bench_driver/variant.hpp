// SPDX-License-Identifier: BSD-3-Clause
// The variants that are compared: the runtime by itself, in each of its implementations of windows, and farside on
// each of its routes. A new variant is a line in variant.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/launch.hpp"

namespace farside::tools {

struct Variant {
  enum class Kind {
    kNative,     // no farside
    kNode,       // farside with its defaults
    kUnchecked,  // farside with FARSIDE_CHECK=off
    kFabric,     // farside forced over libfabric
  };
  std::string_view key;
  std::string_view title;        // "{}" in it stands for the libfabric provider
  std::string_view explanation;  // for the help
  Kind kind = Kind::kNative;
  std::string_view component = "";  // component of Open MPI's framework osc; empty: its default

  bool native() const { return kind == Kind::kNative; }
  // Whether this runtime has the variant.
  bool exists_in(const Runtime& runtime) const { return component.empty() || runtime.name == "openmpi"; }
  std::string full_title(const std::string& provider) const;
  // The variables that choose the component: OMPI_MCA_*.
  Variables component_variables() const;
};

// Returns all variants, in the order in which they are measured and shown.
std::span<const Variant> all_variants();

// Returns the variants with these keys, in that order; unknown keys are skipped.
std::vector<const Variant*> variants_named(const std::vector<std::string>& keys);

}  // namespace farside::tools
