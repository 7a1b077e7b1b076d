// SPDX-License-Identifier: BSD-3-Clause
// Uses the copy of UCX in foreign_ucx.c, by name.
void* foreign_worker(void);
unsigned ucp_worker_progress(void* worker);
unsigned foreign_progress(void);
unsigned foreign_progress_behind(void);

// Compilers make this a tail call, which returns to the caller's caller.
unsigned foreign_progress(void) { return ucp_worker_progress(foreign_worker()); }
unsigned foreign_progress_behind(void) { return 1 + ucp_worker_progress(foreign_worker()); }
