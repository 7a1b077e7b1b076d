// SPDX-License-Identifier: BSD-3-Clause
// The tables of mistakes; each function is in the file of its name.
#pragma once

#include <span>

#include "misuse/scene.hpp"

namespace misuse {

using Cases = std::span<const Case>;

Cases outside_epochs();
Cases fences();
Cases locks();
Cases start_and_post();
Cases other_side();
Cases arguments();
Cases range();
Cases wrong_windows();

}  // namespace misuse
