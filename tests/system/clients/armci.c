// SPDX-License-Identifier: BSD-3-Clause
// One-sided communication by ARMCI (ARMCI-MPI carries it on MPI windows): put, get and accumulate, contiguous, strided,
// as vectors, blocking and not, of single values; read-modify-write; mutexes; fences; groups. Nothing of farside.
#include <armci.h>

#include "check.h"

enum { kDoubles = 4096, kRounds = 100 };

static int rank, size, right, left;

// Memory of `doubles` doubles at every rank; the result is freed by release().
static double** allocate(int doubles) {
  double** memory = malloc(sizeof(double*) * (size_t)size);
  CHECK_EQ(ARMCI_Malloc((void**)memory, (armci_size_t)(sizeof(double) * (size_t)doubles)), 0);
  ARMCI_Access_begin(memory[rank]);
  for (int i = 0; i < doubles; ++i) memory[rank][i] = -1;
  ARMCI_Access_end(memory[rank]);
  ARMCI_Barrier();
  return memory;
}

static void release(double** memory) {
  ARMCI_Barrier();
  CHECK_EQ(ARMCI_Free(memory[rank]), 0);
  free(memory);
}

static void put_get(void) {
  check_section = "put and get";
  double** memory = allocate(kDoubles);
  double *out = ARMCI_Malloc_local(sizeof(double) * kDoubles), *in = ARMCI_Malloc_local(sizeof(double) * kDoubles);
  for (int count = 1; count <= kDoubles; count *= 8) {
    for (int i = 0; i < count; ++i) out[i] = 1000.0 * rank + count + i;
    CHECK_EQ(ARMCI_Put(out, memory[right], (int)sizeof(double) * count, right), 0);
    ARMCI_Fence(right);
    ARMCI_Barrier();
    ARMCI_Access_begin(memory[rank]);
    for (int i = 0; i < count; ++i) CHECK_EQ(memory[rank][i], 1000.0 * left + count + i);
    ARMCI_Access_end(memory[rank]);
    memset(in, 0, sizeof(double) * kDoubles);
    CHECK_EQ(ARMCI_Get(memory[right], in, (int)sizeof(double) * count, right), 0);
    for (int i = 0; i < count; ++i) CHECK_EQ(in[i], out[i]);
    ARMCI_Barrier();
  }
  check_section = "nonblocking";
  armci_hdl_t handles[4];
  for (int i = 0; i < 4; ++i) {
    ARMCI_INIT_HANDLE(&handles[i]);
    out[i] = 10.0 * rank + i;
    CHECK_EQ(ARMCI_NbPut(&out[i], &memory[right][i], sizeof(double), right, &handles[i]), 0);
  }
  for (int i = 0; i < 4; ++i) CHECK_EQ(ARMCI_Wait(&handles[i]), 0);
  ARMCI_AllFence();
  ARMCI_Barrier();
  ARMCI_INIT_HANDLE(&handles[0]);
  CHECK_EQ(ARMCI_NbGet(memory[left], in, 4 * sizeof(double), left, &handles[0]), 0);
  CHECK_EQ(ARMCI_WaitAll(), 0);
  const int before = (left + size - 1) % size;
  for (int i = 0; i < 4; ++i) CHECK_EQ(in[i], 10.0 * before + i);
  check_section = "single values";
  ARMCI_Barrier();
  CHECK_EQ(ARMCI_PutValueDouble(0.5 + rank, &memory[right][9], right), 0);
  CHECK_EQ(ARMCI_PutValueLong(77 + rank, &memory[right][10], right), 0);
  ARMCI_AllFence();
  ARMCI_Barrier();
  CHECK_EQ(ARMCI_GetValueDouble(&memory[right][9], right), 0.5 + rank);
  CHECK_EQ(ARMCI_GetValueLong(&memory[right][10], right), 77 + rank);
  check_section = "put with a flag";
  int *flag = (int*)&memory[right][20], *mine = (int*)&memory[rank][20];
  CHECK_EQ(ARMCI_Put_flag(out, memory[right], 4 * sizeof(double), flag, 4711, right), 0);
  while (ARMCI_GetValueInt(mine, rank) != 4711) continue;
  ARMCI_Access_begin(memory[rank]);
  for (int i = 0; i < 4; ++i) CHECK_EQ(memory[rank][i], 10.0 * left + i);
  ARMCI_Access_end(memory[rank]);
  ARMCI_Free_local(out);
  ARMCI_Free_local(in);
  release(memory);
}

// Everybody adds to everybody, in each type.
static void accumulate(void) {
  check_section = "accumulate";
  enum { kCount = 50 };
  double** memory = allocate(2 * kCount);
#define ACCUMULATE(type, armci_type)                                                                \
  do {                                                                                              \
    type out[kCount], *mine = (type*)memory[rank], scale = 3;                                       \
    ARMCI_Access_begin(mine);                                                                       \
    for (int i = 0; i < kCount; ++i) mine[i] = (type)i;                                             \
    ARMCI_Access_end(mine);                                                                         \
    for (int i = 0; i < kCount; ++i) out[i] = (type)(rank + i);                                     \
    ARMCI_Barrier();                                                                                \
    for (int target = 0; target < size; ++target)                                                   \
      CHECK_EQ(ARMCI_Acc(armci_type, &scale, out, memory[target], (int)sizeof out, target), 0);     \
    ARMCI_AllFence();                                                                               \
    ARMCI_Barrier();                                                                                \
    ARMCI_Access_begin(mine);                                                                       \
    for (int i = 0; i < kCount; ++i) CHECK_EQ(mine[i], i + 3 * (size * (size - 1) / 2 + size * i)); \
    ARMCI_Access_end(mine);                                                                         \
    ARMCI_Barrier();                                                                                \
  } while (0)
  ACCUMULATE(int, ARMCI_ACC_INT);
  ACCUMULATE(long, ARMCI_ACC_LNG);
  ACCUMULATE(float, ARMCI_ACC_FLT);
  ACCUMULATE(double, ARMCI_ACC_DBL);
  check_section = "accumulate complex";
  double one[2 * kCount], scale[2] = {0, 1};  // i times (i + 1) is i - 1
  ARMCI_Access_begin(memory[rank]);
  for (int i = 0; i < 2 * kCount; ++i) memory[rank][i] = 0;
  ARMCI_Access_end(memory[rank]);
  for (int i = 0; i < 2 * kCount; ++i) one[i] = 1;
  ARMCI_Barrier();
  CHECK_EQ(ARMCI_Acc(ARMCI_ACC_DCP, scale, one, memory[0], sizeof one, 0), 0);
  ARMCI_AllFence();
  ARMCI_Barrier();
  double seen[2 * kCount];
  CHECK_EQ(ARMCI_Get(memory[0], seen, sizeof seen, 0), 0);
  for (int i = 0; i < kCount; ++i) {
    CHECK_EQ(seen[2 * i], -size);
    CHECK_EQ(seen[2 * i + 1], size);
  }
  release(memory);
}

// A box of 3 x 4 x 5 doubles, in an array of 6 x 8 x 10 at the target and of its own size here.
static void strided(void) {
  check_section = "strided";
  enum { kX = 10, kY = 8, kZ = 6, kBox = 60 };
  double** memory = allocate(kX * kY * kZ);
  double box[kBox], back[kBox] = {0};
  for (int i = 0; i < kBox; ++i) box[i] = 100.0 * rank + i;
  int count[3] = {5 * (int)sizeof(double), 4, 3};
  int near[2] = {5 * (int)sizeof(double), 20 * (int)sizeof(double)};
  int far[2] = {kX * (int)sizeof(double), kX * kY * (int)sizeof(double)};
  const int start = 2 + kX * 3 + kX * kY * 1;
  for (int nonblocking = 0; nonblocking < 2; ++nonblocking) {
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    if (nonblocking) {
      CHECK_EQ(ARMCI_NbPutS(box, near, memory[right] + start, far, count, 2, right, &handle), 0);
      CHECK_EQ(ARMCI_Wait(&handle), 0);
    } else {
      CHECK_EQ(ARMCI_PutS(box, near, memory[right] + start, far, count, 2, right), 0);
    }
    ARMCI_AllFence();
    ARMCI_Barrier();
    ARMCI_Access_begin(memory[rank]);
    for (int z = 0; z < kZ; ++z)
      for (int y = 0; y < kY; ++y)
        for (int x = 0; x < kX; ++x) {
          const int inside = x >= 2 && x < 7 && y >= 3 && y < 7 && z >= 1 && z < 4;
          CHECK_EQ(memory[rank][x + kX * y + kX * kY * z],
                   inside ? 100.0 * left + (x - 2) + 5 * (y - 3) + 20 * (z - 1) : -1);
        }
    ARMCI_Access_end(memory[rank]);
    ARMCI_Barrier();
    double scale = 2;
    CHECK_EQ(ARMCI_AccS(ARMCI_ACC_DBL, &scale, box, near, memory[right] + start, far, count, 2, right), 0);
    ARMCI_AllFence();
    CHECK_EQ(ARMCI_GetS(memory[right] + start, far, back, near, count, 2, right), 0);
    for (int i = 0; i < kBox; ++i) CHECK_EQ(back[i], 3 * box[i]);
    ARMCI_Barrier();
  }
  release(memory);
}

static void vectors(void) {
  check_section = "vectors";
  enum { kPieces = 7 };
  double** memory = allocate(100);
  double out[kPieces][2], in[kPieces][2];
  void *from[kPieces], *at[kPieces], *to[kPieces];
  for (int i = 0; i < kPieces; ++i) {
    out[i][0] = 10 * rank + i;
    out[i][1] = -out[i][0];
    from[i] = out[i];
    to[i] = in[i];
    at[i] = memory[right] + (i * 37) % 98 / 2 * 2;
  }
  armci_giov_t put = {from, at, sizeof out[0], kPieces}, get = {at, to, sizeof in[0], kPieces};
  double scale = 4;
  CHECK_EQ(ARMCI_PutV(&put, 1, right), 0);
  ARMCI_Fence(right);
  CHECK_EQ(ARMCI_AccV(ARMCI_ACC_DBL, &scale, &put, 1, right), 0);
  ARMCI_Fence(right);
  CHECK_EQ(ARMCI_GetV(&get, 1, right), 0);
  for (int i = 0; i < kPieces; ++i) {
    CHECK_EQ(in[i][0], 5 * out[i][0]);
    CHECK_EQ(in[i][1], 5 * out[i][1]);
  }
  release(memory);
}

static int ascending(const void* a, const void* b) {
  return (*(const long*)a > *(const long*)b) - (*(const long*)a < *(const long*)b);
}

static void read_modify_write(void) {
  check_section = "read-modify-write";
  double** memory = allocate(4);
  if (rank == 0) {
    ARMCI_Access_begin(memory[0]);
    memset(memory[0], 0, 4 * sizeof(double));
    ARMCI_Access_end(memory[0]);
  }
  ARMCI_Barrier();
  long drawn[kRounds];
  for (int i = 0; i < kRounds; ++i) {
    CHECK_EQ(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &drawn[i], &memory[0][0], 1, 0), 0);
    int before = -1;
    CHECK_EQ(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &before, &memory[0][1], 2, 0), 0);
    CHECK_EQ(before % 2, 0);
  }
  ARMCI_Barrier();
  CHECK_EQ(ARMCI_GetValueLong(&memory[0][0], 0), kRounds * size);
  CHECK_EQ(ARMCI_GetValueInt(&memory[0][1], 0), 2 * kRounds * size);
  long* all = malloc(sizeof drawn * (size_t)size);
  MPI_Allgather(drawn, kRounds, MPI_LONG, all, kRounds, MPI_LONG, MPI_COMM_WORLD);
  qsort(all, (size_t)(kRounds * size), sizeof *all, ascending);
  for (int i = 0; i < kRounds * size; ++i) CHECK_EQ(all[i], i);
  free(all);
  // One token goes round by swaps: it is never lost nor doubled.
  ARMCI_Barrier();
  long token = rank + 1;
  for (int i = 0; i < kRounds; ++i) CHECK_EQ(ARMCI_Rmw(ARMCI_SWAP_LONG, &token, &memory[0][2], 0, 0), 0);
  int small = rank + 1;
  for (int i = 0; i < kRounds; ++i) CHECK_EQ(ARMCI_Rmw(ARMCI_SWAP, &small, &memory[0][3], 0, 0), 0);
  ARMCI_Barrier();
  long mine[2] = {token, small}, sum[2] = {0, 0};
  MPI_Allreduce(mine, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  sum[0] += ARMCI_GetValueLong(&memory[0][2], 0);
  sum[1] += ARMCI_GetValueInt(&memory[0][3], 0);
  CHECK_EQ(sum[0], size * (size + 1) / 2);
  CHECK_EQ(sum[1], size * (size + 1) / 2);
  release(memory);
}

// A counter that is read and written by plain get and put loses nothing under a mutex.
static void mutexes(void) {
  check_section = "mutexes";
  enum { kMutexes = 3 };
  double** memory = allocate(kMutexes);
  for (int i = 0; i < kMutexes; ++i) {
    const double zero = 0;
    CHECK_EQ(ARMCI_Put((void*)&zero, &memory[rank][i], sizeof zero, rank), 0);
  }
  CHECK_EQ(ARMCI_Create_mutexes(kMutexes), 0);
  ARMCI_Barrier();
  for (int i = 0; i < kRounds; ++i) {
    const int target = (rank + i) % size, mutex = i % kMutexes;
    double value = 0;
    ARMCI_Lock(mutex, target);
    CHECK_EQ(ARMCI_Get(&memory[target][mutex], &value, sizeof value, target), 0);
    value += 1;
    CHECK_EQ(ARMCI_Put(&value, &memory[target][mutex], sizeof value, target), 0);
    ARMCI_Fence(target);
    ARMCI_Unlock(mutex, target);
  }
  ARMCI_Barrier();
  double sum = 0;
  for (int i = 0; i < kMutexes; ++i) sum += ARMCI_GetValueDouble(&memory[rank][i], rank);
  double all = 0;
  MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  CHECK_EQ(all, kRounds * size);
  CHECK_EQ(ARMCI_Destroy_mutexes(), 0);
  release(memory);
}

// Many puts to all, a fence for each target, then a message that says so: whoever gets it sees the data.
static void fences(void) {
  check_section = "fences";
  double** memory = allocate(kRounds);
  double out[kRounds];
  for (int i = 0; i < kRounds; ++i) out[i] = 1000.0 * rank + i;
  for (int i = 0; i < kRounds; ++i) CHECK_EQ(ARMCI_Put(&out[i], &memory[right][i], sizeof out[i], right), 0);
  ARMCI_Fence(right);
  int token = 0;
  MPI_Sendrecv(&rank, 1, MPI_INT, right, 0, &token, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK_EQ(token, left);
  ARMCI_Access_begin(memory[rank]);
  for (int i = 0; i < kRounds; ++i) CHECK_EQ(memory[rank][i], 1000.0 * left + i);
  ARMCI_Access_end(memory[rank]);
  release(memory);
}

// Memory of the odd ranks and of the even ones, some of it of size 0.
static void groups(void) {
  check_section = "groups";
  int members[64], count = 0;
  for (int each = rank % 2; each < size; each += 2) members[count++] = each;
  ARMCI_Group group;
  ARMCI_Group_create(count, members, &group);
  double* memory[64];
  const armci_size_t bytes = rank < 2 ? 64 : 0;
  CHECK_EQ(ARMCI_Malloc_group((void**)memory, bytes, &group), 0);
  const double value = 5 + rank;
  CHECK_EQ(ARMCI_Put((void*)&value, memory[0] + rank / 2, sizeof value, members[0]), 0);
  ARMCI_AllFence();
  ARMCI_Barrier();
  if (rank < 2)
    for (int i = 0; i < count; ++i) CHECK_EQ(ARMCI_GetValueDouble(memory[0] + i, rank), 5 + members[i]);
  ARMCI_Barrier();
  int mine = 0;
  ARMCI_Group_rank(&group, &mine);
  CHECK_EQ(ARMCI_Free_group(memory[mine], &group), 0);
  ARMCI_Group_free(&group);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check_start();
  CHECK_EQ(ARMCI_Init(), 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  right = (rank + 1) % size;
  left = (rank + size - 1) % size;
  put_get();
  accumulate();
  strided();
  vectors();
  read_modify_write();
  mutexes();
  fences();
  groups();
  check_section = "the end";
  ARMCI_Finalize();
  MPI_Finalize();
  return 0;
}
