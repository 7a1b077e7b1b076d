// SPDX-License-Identifier: BSD-3-Clause
// The permission for other processes of this user to call process_vm_readv(2) and process_vm_writev(2) on this process.
// The Yama security module requires it if kernel.yama.ptrace_scope is 1. Yama has one such permission per process, and
// it includes more than these calls: with it, any process of this user may also attach a debugger. So farside gives the
// permission only when a peer needs it. farside does not revoke it: the MPI runtimes give the same permission for their
// own messages inside a node, which would fail without it, and no call tells whether a process has given it.
#pragma once

#include <mutex>

namespace farside {

// The interface to Yama; tests use another one.
struct Yama {
  // Returns kernel.yama.ptrace_scope; 0 without Yama.
  int (*scope)();
  // Permits any process (prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)).
  void (*permit)();
};
extern const Yama kSystemYama;

// The permission of this process. Thread safety: any. Cost: need() reads a file until the permission is given.
class PeerPermission {
 public:
  explicit PeerPermission(const Yama& yama) : yama_(yama) {}
  static PeerPermission& instance();
  // Notes that a peer needs the permission. Gives it, if Yama requires it and it was not given before.
  void need();
  // Returns whether a peer has needed the permission.
  bool needed() const;

 private:
  const Yama yama_;
  mutable std::mutex mutex_;
  bool needed_ = false;
  bool given_ = false;
};

}  // namespace farside
