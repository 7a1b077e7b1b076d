#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One would guess that a provider whose fi_info has FI_ATOMIC, and which was asked for it in the hints, carries out at
# least one atomic operation on one datatype (fi_getinfo(3), fi_atomic(3)).
# True of libfabric 1.17.0: the provider "net" over sockets (FI_EP_RDM; called tcp from 1.18) is returned for hints with
# FI_ATOMIC and repeats the bit, and fi_atomicvalid, fi_fetch_atomicvalid and fi_compare_atomicvalid answer -FI_ENOSYS
# for every operation and type. So ask these calls, not the capability bits.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/packages.bash"
libfabric
cat >"$scratch/program.c" <<'C'
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
static void check(int code, const char* what) {
  if (code != 0) printf("%s: %s\n", what, fi_strerror(-code));
}
int main(void) {
  struct fi_info *hints = fi_allocinfo(), *info = NULL;
  hints->caps = FI_RMA | FI_ATOMIC;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = strdup("net");
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL;
  const int got = fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &info);
  if (got != 0) {
    printf("fi_getinfo: %s\n", fi_strerror(-got));
    return 1;
  }
  printf("%s, FI_ATOMIC: %s\n", info->fabric_attr->prov_name, info->caps & FI_ATOMIC ? "yes" : "no");
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_cq* queue;
  struct fid_av* addresses;
  struct fid_ep* endpoint;
  struct fi_cq_attr queue_attr = {.format = FI_CQ_FORMAT_CONTEXT};
  struct fi_av_attr addresses_attr = {.type = FI_AV_TABLE};
  check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
  check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
  check(fi_cq_open(domain, &queue_attr, &queue, NULL), "fi_cq_open");
  check(fi_av_open(domain, &addresses_attr, &addresses, NULL), "fi_av_open");
  check(fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
  check(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
  check(fi_enable(endpoint), "fi_enable");
  int valid = 0, missing = 0, other = 0;
  for (int type = FI_INT8; type <= FI_LONG_DOUBLE_COMPLEX; ++type) {
    for (int op = FI_MIN; op <= FI_MSWAP; ++op) {
      size_t count;
      const int codes[] = {fi_atomicvalid(endpoint, type, op, &count), fi_fetch_atomicvalid(endpoint, type, op, &count),
                           fi_compare_atomicvalid(endpoint, type, op, &count)};
      for (int i = 0; i < 3; ++i) {
        if (codes[i] == 0) ++valid;
        else if (codes[i] == -FI_ENOSYS) ++missing;
        else ++other;
      }
    }
  }
  printf("valid: %s, -FI_ENOSYS: %s, other errors: %s\n", valid ? "some" : "none", missing ? "some" : "none",
         other ? "some" : "none");
  fi_close(&endpoint->fid);
  fi_close(&addresses->fid);
  fi_close(&queue->fid);
  fi_close(&domain->fid);
  fi_close(&fabric->fid);
  fi_freeinfo(info);
  fi_freeinfo(hints);
}
C
compile "$scratch/program.c" "$scratch/program"
timeout 60 "$scratch/program" | expect 'net, FI_ATOMIC: yes
valid: none, -FI_ENOSYS: some, other errors: none'
