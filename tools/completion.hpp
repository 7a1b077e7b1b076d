// SPDX-License-Identifier: BSD-3-Clause
// What a shell completes of the `farside` command, made of its own options.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace farside::tools {

// A file for bash-completion: commands, their options, the choices of options that have some, settings behind
// --set.
std::string bash_completion(const CLI::App& app);

}  // namespace farside::tools
