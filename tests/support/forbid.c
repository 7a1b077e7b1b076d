/* SPDX-License-Identifier: BSD-3-Clause
   forbid cma PROGRAM...: runs it under a seccomp filter that refuses process_vm_readv and process_vm_writev with EPERM,
   as containers have it.   forbid memfd PROGRAM...: memfd_create.   forbid mbind PROGRAM...: mbind. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const int cma = argc > 2 && strcmp(argv[1], "cma") == 0, mbind = argc > 2 && strcmp(argv[1], "mbind") == 0;
  if (argc < 3 || (!cma && !mbind && strcmp(argv[1], "memfd") != 0)) {
    fprintf(stderr, "forbid cma|memfd|mbind PROGRAM...\n");
    return 2;
  }
  const unsigned call = cma ? SYS_process_vm_readv : mbind ? SYS_mbind : SYS_memfd_create;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, cma ? SYS_process_vm_writev : call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    perror("forbid");
    return 77;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
