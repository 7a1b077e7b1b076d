// SPDX-License-Identifier: BSD-3-Clause
// Preloaded over Soft-RoCE by run_program: takes the limit off the time an adapter waits for an answer before it sends
// again. rdma_rxe (Linux 6.1) has one timer for a queue pair that runs on while answers come, so now and then it fires
// just while an atomic is under way; the atomic, fenced by libfabric as all are, then waits for all atomics before it
// to end, itself among them (rxe_wqe_is_fenced, rd_atomic), and never is sent again. Between queue pairs of one device
// nothing is lost, and there is nothing to send again.
//
// For tests of what is lost TEST_RXE_TRIES=N: the adapter gives up after N times 0.5 s instead. (By itself it never
// does: libfabric asks for as many attempts as there can be, 7, which rdma_rxe takes for no limit.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

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
