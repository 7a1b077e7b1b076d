/* SPDX-License-Identifier: BSD-3-Clause
   Notified access: one-sided communication that tells its target, with the names and arguments of the MPI Forum's
   proposal (mpi-issues 59), but MPIX_ for MPI_. The functions are farside's if it is loaded; else, and on windows that
   stay with the runtime, fall-backs on plain MPI, in passive target epochs only. The guide is notified-access.md. */
#ifndef FARSIDE_H
#define FARSIDE_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MPIX_NOTIFY_NUM_UB 256                      /* the most counters of a rank in a window */
#define MPIX_ERR_RMA_NOTIFICATION MPI_ERR_RMA_RANGE /* there is no such counter */

/* Collective, outside of access epochs: gives the calling rank `number` counters in the window, from 0 on. All of them
   are then 0. MPI_INFO_NULL is a good `info`. */
int MPIX_Win_set_num_notify(MPI_Win win, MPI_Info info, int number);
/* How many counters the target has, which over a network is asked once; what a counter of the calling rank has, and
   sets it to 0. Where a counter shows that an operation is done, its data may be loaded. */
int MPIX_Win_get_num_notify(MPI_Win win, int target, int* number);
int MPIX_Win_get_notify_value(MPI_Win win, int notify, MPI_Count* value);
int MPIX_Win_reset_notify_value(MPI_Win win, int notify, MPI_Count* value);
/* Beyond the proposal: waits until a counter of the calling rank is at least the threshold, or asks whether it is. */
int MPIX_Win_wait_notify(MPI_Win win, int notify, MPI_Count threshold);
int MPIX_Win_test_notify(MPI_Win win, int notify, MPI_Count threshold, int* flag);

/* As MPI_Put and its like; then the target's counter `notify` grows by 1. With MPI 4 also with MPI_Count (names with
   _c). */
#define FARSIDE_TARGET(Count) int target, MPI_Aint at, Count target_count, MPI_Datatype target_type
#define FARSIDE_PUT(Count) \
  const void *origin, Count count, MPI_Datatype type, FARSIDE_TARGET(Count), int notify, MPI_Win win
#define FARSIDE_GET(Count) void *origin, Count count, MPI_Datatype type, FARSIDE_TARGET(Count), int notify, MPI_Win win
#define FARSIDE_ACCUMULATE(Count) \
  const void *origin, Count count, MPI_Datatype type, FARSIDE_TARGET(Count), MPI_Op op, int notify, MPI_Win win
#define FARSIDE_FETCH(Count)                                                                                      \
  const void *origin, Count count, MPI_Datatype type, void *result, Count result_count, MPI_Datatype result_type, \
      FARSIDE_TARGET(Count), MPI_Op op, int notify, MPI_Win win
#define FARSIDE_DECLARE(c, Count)                                                  \
  int MPIX_Put_notify##c(FARSIDE_PUT(Count));                                      \
  int MPIX_Get_notify##c(FARSIDE_GET(Count));                                      \
  int MPIX_Accumulate_notify##c(FARSIDE_ACCUMULATE(Count));                        \
  int MPIX_Get_accumulate_notify##c(FARSIDE_FETCH(Count));                         \
  int MPIX_Rput_notify##c(FARSIDE_PUT(Count), MPI_Request* request);               \
  int MPIX_Rget_notify##c(FARSIDE_GET(Count), MPI_Request* request);               \
  int MPIX_Raccumulate_notify##c(FARSIDE_ACCUMULATE(Count), MPI_Request* request); \
  int MPIX_Rget_accumulate_notify##c(FARSIDE_FETCH(Count), MPI_Request* request);
FARSIDE_DECLARE(, int)
#if MPI_VERSION >= 4
FARSIDE_DECLARE(_c, MPI_Count)
#endif

#ifndef FARSIDE_NOTIFY_LINKED /* defined: the functions above alone, for programs that are linked to farside */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifndef RTLD_DEFAULT
#define RTLD_DEFAULT ((void*)0)
#endif

/* The counters of a fall-back: a second window, and the number of each rank's, as an attribute of the first one. */
struct farside_counters {
  MPI_Win win;
  MPI_Comm comm; /* of the window; MPICH 4.0 hangs if it is freed first */
  int rank, size, numbers[1];
};
/* Of the process: the attribute's key, and how many windows have such counters. */
__attribute__((weak)) struct farside_fall_backs { int key, windows; } farside_fall_backs = {MPI_KEYVAL_INVALID, 0};

static inline struct farside_counters* farside_counters_of(MPI_Win win) {
  void* counters = NULL;
  int found = 0;
  if (__atomic_load_n(&farside_fall_backs.windows, __ATOMIC_ACQUIRE) > 0)
    MPI_Win_get_attr(win, farside_fall_backs.key, &counters, &found);
  return found ? (struct farside_counters*)counters : NULL;
}
/* Returns farside's function, which *known remembers, or NULL if the window has a fall-back's counters. Others have
   functions of these names, so the version is asked for, too. */
static inline void* farside_find(void** known, const char* name, MPI_Win win) {
  void* found = __atomic_load_n(known, __ATOMIC_RELAXED);
  if (found == &farside_fall_backs) {
    found = dlsym(RTLD_DEFAULT, "farside_version") ? dlsym(RTLD_DEFAULT, name) : NULL;
    __atomic_store_n(known, found, __ATOMIC_RELAXED);
  }
  return found && !farside_counters_of(win) ? found : NULL;
}
/* Whether the window is the runtime's, although farside is loaded: others say their route. */
static inline int farside_left(MPI_Win win) {
  int length, said = 0;
  MPI_Info info;
  if (MPI_Win_get_info(win, &info)) return 1;
  MPI_Info_get_valuelen(info, "farside_route", &length, &said);
  MPI_Info_free(&info);
  return !said;
}
static inline int farside_error(MPI_Win win, int code) {
  MPI_Win_call_errhandler(win, code);
  return code;
}
/* Frees the counters when the window is freed, or gets others. */
static inline int farside_drop(MPI_Win win, int key, void* value, void* extra) {
  struct farside_counters* own = (struct farside_counters*)value;
  MPI_Win_unlock_all(own->win);
  MPI_Win_free(&own->win);
  MPI_Comm_free(&own->comm);
  free(own);
  __atomic_fetch_sub(&farside_fall_backs.windows, 1, __ATOMIC_RELEASE);
  (void)win, (void)key, (void)extra;
  return MPI_SUCCESS;
}
static inline int farside_set_num(MPI_Win win, int number) {
  struct farside_counters* own;
  MPI_Group group, world;
  void* memory;
  const int bad = number < 0 || number > MPIX_NOTIFY_NUM_UB;
  const struct farside_counters* const before = farside_counters_of(win);
  int *ranks, size, code, i, key = MPI_KEYVAL_INVALID, none = MPI_KEYVAL_INVALID;
  if (bad) number = before ? before->numbers[before->rank] : 0;
  MPI_Win_get_group(win, &group);
  MPI_Group_size(group, &size);
  own = (struct farside_counters*)malloc(sizeof *own + (size_t)size * sizeof(int));
  ranks = (int*)malloc(2 * (size_t)size * sizeof(int));
  if (!own || !ranks) MPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
  own->size = size;
  /* A group of the world's own: MPICH 4.0 crashes on that of the window. */
  for (i = 0; i < size; ++i) ranks[i] = i;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, ranks, world, ranks + size);
  MPI_Group_free(&group);
  MPI_Group_incl(world, size, ranks + size, &group);
  code = MPI_Comm_create_group(MPI_COMM_WORLD, group, 59, &own->comm);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  free(ranks);
  if (code) {
    free(own);
    return farside_error(win, code);
  }
  MPI_Comm_rank(own->comm, &own->rank);
  MPI_Allgather(&number, 1, MPI_INT, own->numbers, 1, MPI_INT, own->comm);
  /* More than it needs: in MPICH 4.0 small windows share memory. */
  MPI_Win_allocate(4096, 8, MPI_INFO_NULL, own->comm, &memory, &own->win);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, own->rank, 0, own->win);
  memset(memory, 0, 4096);
  MPI_Win_unlock(own->rank, own->win);
  MPI_Barrier(own->comm);
  MPI_Win_lock_all(0, own->win);
  if (farside_fall_backs.key == MPI_KEYVAL_INVALID) {
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, farside_drop, &key, NULL);
    if (!__atomic_compare_exchange_n(&farside_fall_backs.key, &none, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      MPI_Win_free_keyval(&key);
  }
  __atomic_fetch_add(&farside_fall_backs.windows, 1, __ATOMIC_RELEASE);
  code = MPI_Win_set_attr(win, farside_fall_backs.key, own);
  return bad ? farside_error(win, MPI_ERR_ARG) : code;
}
static inline int farside_get_num(MPI_Win win, int target, int* number) {
  struct farside_counters* own = farside_counters_of(win);
  *number = 0;
  if (own && (target < 0 || target >= own->size)) return farside_error(win, MPI_ERR_RANK);
  if (own) *number = own->numbers[target];
  return MPI_SUCCESS;
}
/* Reads a counter of the calling rank, and replaces it if op does. */
static inline int farside_own(MPI_Win win, int notify, MPI_Op op, MPI_Count* value) {
  struct farside_counters* own = farside_counters_of(win);
  int64_t zero = 0, now = 0;
  int code, seen;
  if (!own || notify < 0 || notify >= own->numbers[own->rank]) return farside_error(win, MPIX_ERR_RMA_NOTIFICATION);
  code = MPI_Fetch_and_op(&zero, &now, MPI_INT64_T, own->rank, notify, op, own->win);
  if (!code) code = MPI_Win_flush(own->rank, own->win);
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &seen, MPI_STATUS_IGNORE); /* lets the runtime progress */
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  *value = now;
  return code;
}
static inline int farside_wait(MPI_Win win, int notify, MPI_Count threshold) {
  MPI_Count value = 0;
  int code, round;
  for (round = 0;; ++round) {
    code = farside_own(win, notify, MPI_NO_OP, &value);
    if (code || value >= threshold) return code;
    if (round > 10000)
      poll(NULL, 0, 1);
    else if (round > 100)
      sched_yield();
  }
}
static inline int farside_check(MPI_Win win, int target, int notify) {
  struct farside_counters* own = farside_counters_of(win);
  if (target == MPI_PROC_NULL) return MPI_SUCCESS;
  if (own && (target < 0 || target >= own->size)) return farside_error(win, MPI_ERR_RANK);
  return own && notify >= 0 && notify < own->numbers[target] ? MPI_SUCCESS
                                                             : farside_error(win, MPIX_ERR_RMA_NOTIFICATION);
}
/* Completes the operation, for which the runtime wants a passive target epoch, and then counts it. */
static inline int farside_tell(MPI_Win win, int target, int notify) {
  struct farside_counters* own = farside_counters_of(win);
  int64_t one = 1, before;
  int code = target == MPI_PROC_NULL ? MPI_SUCCESS : MPI_Win_flush(target, win);
  if (code || target == MPI_PROC_NULL) return code;
  code = MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, notify, MPI_SUM, own->win);
  return code ? code : MPI_Win_flush(target, own->win);
}

/* Each function: farside's, else the fall-back. */
#define FARSIDE_CALL(name, parameters, arguments, fall_back)                  \
  static inline int farside_##name parameters {                               \
    static void* known = &farside_fall_backs;                                 \
    void* call = farside_find(&known, "MPIX_" #name, win);                    \
    int code = MPI_SUCCESS;                                                   \
    if (call) return (__extension__(__typeof__(&MPIX_##name)) call)arguments; \
    fall_back;                                                                \
    return code;                                                              \
  }
#define FARSIDE_OPERATION(name, request_based, PARAMETERS, operation, ...)                       \
  FARSIDE_CALL(name, (PARAMETERS), (__VA_ARGS__), code = farside_check(win, target, notify);     \
               if (!code) code = operation; if (!code) code = farside_tell(win, target, notify)) \
  FARSIDE_CALL(request_based, (PARAMETERS, MPI_Request * request), (__VA_ARGS__, request),       \
               code = farside_##name(__VA_ARGS__);                                               \
               if (!code) code = MPI_Irecv(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_SELF, request))
#define FARSIDE_THERE target, at, target_count, target_type
#define FARSIDE_ONE_BUFFER origin, count, type, FARSIDE_THERE
#define FARSIDE_TWO_BUFFERS origin, count, type, result, result_count, result_type, FARSIDE_THERE
#define FARSIDE_OPERATIONS(c, Count)                                                                        \
  FARSIDE_OPERATION(Put_notify##c, Rput_notify##c, FARSIDE_PUT(Count), MPI_Put##c(FARSIDE_ONE_BUFFER, win), \
                    FARSIDE_ONE_BUFFER, notify, win)                                                        \
  FARSIDE_OPERATION(Get_notify##c, Rget_notify##c, FARSIDE_GET(Count), MPI_Get##c(FARSIDE_ONE_BUFFER, win), \
                    FARSIDE_ONE_BUFFER, notify, win)                                                        \
  FARSIDE_OPERATION(Accumulate_notify##c, Raccumulate_notify##c, FARSIDE_ACCUMULATE(Count),                 \
                    MPI_Accumulate##c(FARSIDE_ONE_BUFFER, op, win), FARSIDE_ONE_BUFFER, op, notify, win)    \
  FARSIDE_OPERATION(Get_accumulate_notify##c, Rget_accumulate_notify##c, FARSIDE_FETCH(Count),              \
                    MPI_Get_accumulate##c(FARSIDE_TWO_BUFFERS, op, win), FARSIDE_TWO_BUFFERS, op, notify, win)
FARSIDE_OPERATIONS(, int)
#if MPI_VERSION >= 4
FARSIDE_OPERATIONS(_c, MPI_Count)
#endif
FARSIDE_CALL(Win_get_num_notify, (MPI_Win win, int target, int* number), (win, target, number),
             code = farside_get_num(win, target, number))
FARSIDE_CALL(Win_get_notify_value, (MPI_Win win, int notify, MPI_Count* value), (win, notify, value),
             code = farside_own(win, notify, MPI_NO_OP, value))
FARSIDE_CALL(Win_reset_notify_value, (MPI_Win win, int notify, MPI_Count* value), (win, notify, value),
             code = farside_own(win, notify, MPI_REPLACE, value))
FARSIDE_CALL(Win_wait_notify, (MPI_Win win, int notify, MPI_Count threshold), (win, notify, threshold),
             code = farside_wait(win, notify, threshold))
FARSIDE_CALL(Win_test_notify, (MPI_Win win, int notify, MPI_Count threshold, int* flag), (win, notify, threshold, flag),
             MPI_Count value = 0;
             code = farside_own(win, notify, MPI_NO_OP, &value); *flag = !code && value >= threshold)
static inline int farside_Win_set_num_notify(MPI_Win win, MPI_Info info, int number) {
  static void* known = &farside_fall_backs;
  void* call = farside_find(&known, "MPIX_Win_set_num_notify", win);
  if (!call || farside_left(win)) return farside_set_num(win, number);
  return (__extension__(__typeof__(&MPIX_Win_set_num_notify)) call)(win, info, number);
}

#define MPIX_Win_set_num_notify farside_Win_set_num_notify
#define MPIX_Win_get_num_notify farside_Win_get_num_notify
#define MPIX_Win_get_notify_value farside_Win_get_notify_value
#define MPIX_Win_reset_notify_value farside_Win_reset_notify_value
#define MPIX_Win_wait_notify farside_Win_wait_notify
#define MPIX_Win_test_notify farside_Win_test_notify
#define MPIX_Put_notify farside_Put_notify
#define MPIX_Get_notify farside_Get_notify
#define MPIX_Accumulate_notify farside_Accumulate_notify
#define MPIX_Get_accumulate_notify farside_Get_accumulate_notify
#define MPIX_Rput_notify farside_Rput_notify
#define MPIX_Rget_notify farside_Rget_notify
#define MPIX_Raccumulate_notify farside_Raccumulate_notify
#define MPIX_Rget_accumulate_notify farside_Rget_accumulate_notify
#define MPIX_Put_notify_c farside_Put_notify_c
#define MPIX_Get_notify_c farside_Get_notify_c
#define MPIX_Accumulate_notify_c farside_Accumulate_notify_c
#define MPIX_Get_accumulate_notify_c farside_Get_accumulate_notify_c
#define MPIX_Rput_notify_c farside_Rput_notify_c
#define MPIX_Rget_notify_c farside_Rget_notify_c
#define MPIX_Raccumulate_notify_c farside_Raccumulate_notify_c
#define MPIX_Rget_accumulate_notify_c farside_Rget_accumulate_notify_c
#undef FARSIDE_CALL
#undef FARSIDE_OPERATION
#undef FARSIDE_OPERATIONS
#undef FARSIDE_THERE
#undef FARSIDE_ONE_BUFFER
#undef FARSIDE_TWO_BUFFERS
#endif /* FARSIDE_NOTIFY_LINKED */
#undef FARSIDE_TARGET
#undef FARSIDE_PUT
#undef FARSIDE_GET
#undef FARSIDE_ACCUMULATE
#undef FARSIDE_FETCH
#undef FARSIDE_DECLARE

#ifdef __cplusplus
}
#endif
#endif
