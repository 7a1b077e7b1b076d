// SPDX-License-Identifier: BSD-3-Clause
// Lets other processes of this user call process_vm_readv(2) and process_vm_writev(2) on this one, where the Yama security module asks for that
// (kernel.yama.ptrace_scope = 1). Yama knows one such permission per process, and cannot give it for these calls alone: while it is given, any process of this
// user may also attach a debugger. So it is given while some object of this class lives, and only if Yama asks for it at that time.
// What the program may have set by prctl(PR_SET_PTRACER) itself cannot be read: it is lost.
#pragma once

#include <cstddef>
#include <mutex>

namespace farside {

// What is known of Yama, and what is asked of it; tests have others.
struct Yama {
  // The value of kernel.yama.ptrace_scope; 0 where there is no Yama.
  int (*scope)();
  // Allows any process (true), or none but ancestors (false).
  void (*permit)(bool any);
};
extern const Yama kSystemYama;

// Counts who needs the permission. Thread safety: any.
class PeerPermission {
 public:
  explicit PeerPermission(const Yama& yama) : yama_(yama) {}
  static PeerPermission& instance();
  void add();
  void remove();
  std::size_t users() const;

 private:
  const Yama yama_;
  mutable std::mutex mutex_;
  std::size_t users_ = 0;
  bool given_ = false;
};

class OpenToPeers {
 public:
  explicit OpenToPeers(PeerPermission& permission = PeerPermission::instance()) : permission_(permission) { permission_.add(); }
  OpenToPeers(const OpenToPeers&) = delete;
  OpenToPeers& operator=(const OpenToPeers&) = delete;
  ~OpenToPeers() { permission_.remove(); }

 private:
  PeerPermission& permission_;
};

}  // namespace farside
