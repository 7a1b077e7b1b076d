// SPDX-License-Identifier: BSD-3-Clause
// Lets other processes of this user call process_vm_readv(2) and process_vm_writev(2) on this one, where the Yama
// security module asks for that (kernel.yama.ptrace_scope = 1). Yama knows one such permission per process, and cannot
// give it for these calls alone: once it is given, any process of this user may also attach a debugger. So it is given
// only when a peer needs it. It is not taken back: the MPI runtimes give the same permission for their own messages
// inside a node, it cannot be read, and without it their messages would fail.
#pragma once

#include <mutex>

namespace farside {

// What is known of Yama, and what is asked of it; tests have others.
struct Yama {
  // The value of kernel.yama.ptrace_scope; 0 where there is no Yama.
  int (*scope)();
  // Allows any process (prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)).
  void (*permit)();
};
extern const Yama kSystemYama;

// The permission of this process. Thread safety: any. Cost: a file is read, until the permission is given.
class PeerPermission {
 public:
  explicit PeerPermission(const Yama& yama) : yama_(yama) {}
  static PeerPermission& instance();
  // A peer needs it from now on. Gives it, if Yama asks for it now and it was not given before.
  void need();
  // Whether some peer has needed it.
  bool needed() const;

 private:
  const Yama yama_;
  mutable std::mutex mutex_;
  bool needed_ = false;
  bool given_ = false;
};

}  // namespace farside
