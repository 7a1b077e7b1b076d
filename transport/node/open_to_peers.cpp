// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/open_to_peers.hpp"

#include <sys/prctl.h>

#include <fstream>

namespace farside {
namespace {

int scope_of_system() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope ? scope : 0;
}

// Ignores errors: without the permission a peer's first attempt to read fails, and the peer takes another route.
void ask_system() { (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

// From 2 on only privileged processes have access, whatever this process permits.
constexpr int kDescendantsOnly = 1;

}  // namespace

const Yama kSystemYama{scope_of_system, ask_system};

PeerPermission& PeerPermission::instance() {
  static auto* const permission = new PeerPermission(kSystemYama);  // never destroyed, as Process
  return *permission;
}

void PeerPermission::need() {
  const std::scoped_lock held(mutex_);
  needed_ = true;
  if (given_ || yama_.scope() != kDescendantsOnly) return;
  yama_.permit();
  given_ = true;
}

bool PeerPermission::needed() const {
  const std::scoped_lock held(mutex_);
  return needed_;
}

}  // namespace farside
