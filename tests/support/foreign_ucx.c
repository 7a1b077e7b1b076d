// SPDX-License-Identifier: BSD-3-Clause
// A second copy of UCX beside the runtime's, as in a Python wheel. It has its own workers, and aborts if it gets a
// worker of the other copy.
#include <stdlib.h>

struct worker {
  struct worker* self;
};
static struct worker the_worker = {&the_worker};

void* foreign_worker(void);
unsigned ucp_worker_progress(void* worker);

void* foreign_worker(void) { return &the_worker; }

unsigned ucp_worker_progress(void* worker) {
  if (worker != the_worker.self) abort();
  return 4711;
}
