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

// If Yama refused, the peers' first attempt to read would fail, and they would take another route.
void ask_system(bool any) { (void)prctl(PR_SET_PTRACER, any ? PR_SET_PTRACER_ANY : 0UL, 0, 0, 0); }

// From 2 on only privileged processes may, whatever this one permits.
constexpr int kDescendantsOnly = 1;

}  // namespace

const Yama kSystemYama{scope_of_system, ask_system};

PeerPermission& PeerPermission::instance() {
  static auto* const permission = new PeerPermission(kSystemYama);  // never destroyed, as Process
  return *permission;
}

void PeerPermission::add() {
  const std::scoped_lock held(mutex_);
  ++users_;
  if (given_ || yama_.scope() != kDescendantsOnly) return;
  yama_.permit(true);
  given_ = true;
}

void PeerPermission::remove() {
  const std::scoped_lock held(mutex_);
  if (--users_ > 0 || !given_) return;
  yama_.permit(false);
  given_ = false;
}

std::size_t PeerPermission::users() const {
  const std::scoped_lock held(mutex_);
  return users_;
}

}  // namespace farside
