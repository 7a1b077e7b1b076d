// SPDX-License-Identifier: BSD-3-Clause
// run_program preloads this library over Soft-RoCE. It disables the timeout after which an adapter retransmits.
// rdma_rxe (Linux 6.1) has one timer for a queue pair, which answers do not restart, so it sometimes fires while an
// atomic is outstanding. libfabric fences every atomic. The retransmitted atomic then waits for all earlier atomics,
// counts itself among them (rxe_wqe_is_fenced, rd_atomic), and is never sent again. Between queue pairs of one device
// no packet is lost, so no retransmission is needed.
//
// For tests with lost packets, TEST_RXE_TRIES=N: the adapter fails the operation after N times 0.5 s instead. (By
// default it never fails: libfabric requests the maximum of 7 attempts, which rdma_rxe treats as no limit.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

int ibv_modify_qp(struct ibv_qp* pair, struct ibv_qp_attr* attributes, int mask) {
  static int (*next)(struct ibv_qp*, struct ibv_qp_attr*, int) = NULL;
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "ibv_modify_qp");
  if ((mask & IBV_QP_TIMEOUT) != 0 && strncmp(pair->context->device->name, "rxe", 3) == 0) {
    const char* const tries = getenv("TEST_RXE_TRIES");
    attributes->timeout = tries == NULL ? 0 : 17;  // 4.096 us times 2^17
    if (tries != NULL && (mask & IBV_QP_RETRY_CNT) != 0) attributes->retry_cnt = (uint8_t)(atoi(tries) - 1);
  }
  return next(pair, attributes, mask);
}
