// SPDX-License-Identifier: BSD-3-Clause
// Global Arrays as its manual shows them: arrays put, read and added to by patches; read_inc; mutexes created, locked,
// unlocked, destroyed; init_fence and fence around one operation and several, nested; sync. Debian's is built on
// ARMCI-MPI, so all of it is done on MPI windows. Nothing of farside.
#include <ga.h>
#include <macdecls.h>

#include "check.h"

enum { kSide = 40, kRounds = 60 };

static int rank, size;

static int array(char* name, int side) {
  int dims[2] = {side, side}, chunk[2] = {-1, -1};
  const int made = NGA_Create(C_DBL, 2, dims, name, chunk);
  CHECK_EQ(made != 0, 1);
  GA_Zero(made);
  return made;
}

static double element(int g_a, int row, int column) {
  int at[2] = {row, column}, ld[1] = {1};
  double value = -1;
  NGA_Get(g_a, at, at, &value, ld);
  return value;
}

static void patches(void) {
  check_section = "put, get and accumulate patches";
  const int g_a = array("patches", kSide);
  // Each rank puts a stripe of rows, wherever they live.
  const int from = kSide * rank / size, to = kSide * (rank + 1) / size - 1;
  double *stripe = malloc(sizeof(double) * kSide * kSide), *all = malloc(sizeof(double) * kSide * kSide);
  for (int i = 0; i < (to - from + 1) * kSide; ++i) stripe[i] = from * kSide + i;
  int low[2] = {from, 0}, high[2] = {to, kSide - 1}, ld[1] = {kSide};
  NGA_Put(g_a, low, high, stripe, ld);
  GA_Sync();
  int zero[2] = {0, 0}, end[2] = {kSide - 1, kSide - 1};
  NGA_Get(g_a, zero, end, all, ld);
  for (int i = 0; i < kSide * kSide; ++i) CHECK_EQ(all[i], i);
  GA_Sync();
  // Everybody adds 2 times its block to a patch in the middle, which belongs to several ranks.
  int near[2] = {5, 7}, far[2] = {kSide - 6, kSide - 4}, width[1] = {kSide - 10};
  for (int i = 0; i < kSide * kSide; ++i) stripe[i] = rank + 1;
  double two = 2;
  NGA_Acc(g_a, near, far, stripe, width, &two);
  GA_Sync();
  NGA_Get(g_a, zero, end, all, ld);
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column) {
      const int inside = row >= near[0] && row <= far[0] && column >= near[1] && column <= far[1];
      CHECK_EQ(all[row * kSide + column], row * kSide + column + (inside ? size * (size + 1) : 0));
    }
  GA_Sync();
  check_section = "nonblocking";
  ga_nbhdl_t handle;
  for (int i = 0; i < kSide * kSide; ++i) stripe[i] = 7 * rank + i;
  NGA_NbPut(g_a, low, high, stripe, ld, &handle);
  NGA_NbWait(&handle);
  GA_Sync();
  double corner = -1;
  int first[2] = {kSide * ((rank + 1) % size) / size, 0}, one[1] = {1};
  NGA_NbGet(g_a, first, first, &corner, one, &handle);
  NGA_NbWait(&handle);
  CHECK_EQ(corner, 7 * ((rank + 1) % size));
  GA_Sync();
  check_section = "scattered elements";
  int *places[kRounds], at[kRounds][2];
  double values[kRounds], seen[kRounds];
  for (int i = 0; i < kRounds; ++i) {
    at[i][0] = (i * size + rank) % kSide;
    at[i][1] = (i * size + rank) / kSide;
    places[i] = at[i];
    values[i] = 1000 * rank + i;
  }
  NGA_Scatter(g_a, values, places, kRounds);
  GA_Sync();
  NGA_Gather(g_a, seen, places, kRounds);
  for (int i = 0; i < kRounds; ++i) CHECK_EQ(seen[i], 1000 * rank + i);
  GA_Sync();
  free(stripe);
  free(all);
  GA_Destroy(g_a);
}

static void counter(void) {
  check_section = "read_inc";
  int dims[1] = {4}, chunk[1] = {-1}, at[1] = {3};
  const int g_a = NGA_Create(C_LONG, 1, dims, "counter", chunk);
  GA_Zero(g_a);
  long mine = 0, sum = 0, last = -1;
  for (int i = 0; i < kRounds; ++i) {
    const long value = NGA_Read_inc(g_a, at, 1);
    CHECK_EQ(value > last, 1);
    last = value;
    mine += value;
  }
  GA_Sync();
  MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  const long total = (long)kRounds * size;
  CHECK_EQ(sum, total * (total - 1) / 2);
  GA_Destroy(g_a);
}

// As the manual has it: create_mutexes; lock; get, compute, put; fence; unlock; destroy_mutexes.
static void mutexes(void) {
  check_section = "mutexes";
  enum { kMutexes = 5 };
  for (int again = 0; again < 2; ++again) {
    const int g_a = array("under mutexes", kSide);
    CHECK_EQ(GA_Create_mutexes(kMutexes) != 0, 1);
    for (int i = 0; i < kRounds; ++i) {
      const int mutex = (rank + i) % kMutexes;
      int at[2] = {mutex * 7, kSide - 1 - mutex * 7}, ld[1] = {1};
      double value = 0;
      GA_Lock(mutex);
      NGA_Get(g_a, at, at, &value, ld);
      value += 1;
      GA_Init_fence();
      NGA_Put(g_a, at, at, &value, ld);
      GA_Fence();
      GA_Unlock(mutex);
    }
    GA_Sync();
    double sum = 0;
    for (int mutex = 0; mutex < kMutexes; ++mutex) sum += element(g_a, mutex * 7, kSide - 1 - mutex * 7);
    CHECK_EQ(sum, kRounds * size);
    CHECK_EQ(GA_Destroy_mutexes() != 0, 1);
    GA_Destroy(g_a);
  }
}

// What was put before a fence is there when a message tells its owner.
static void told(int g_a, double wanted) {
  int token = 0, low[2], high[2], ld[1];
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &token, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  NGA_Distribution(g_a, rank, low, high);
  double* mine;
  NGA_Access(g_a, low, high, &mine, ld);
  CHECK_EQ(mine[0], wanted + token);
  NGA_Release(g_a, low, high);
  GA_Sync();
}

// Puts a value, and this rank's number on top of it, to the first element of the right on-node peer's part.
static void put(int g_a, double value) {
  value += rank;
  int low[2], high[2], ld[1] = {1};
  NGA_Distribution(g_a, (rank + 1) % size, low, high);
  NGA_Put(g_a, low, low, &value, ld);
}

// Ends a fence around puts to both arrays.
static void fence_both(int g_a, double wanted_a, int g_b, double wanted_b) {
  GA_Fence();
  told(g_a, wanted_a);
  told(g_b, wanted_b);
}

static void fences(void) {
  const int g_a = array("a", kSide), g_b = array("b", 2 * kSide);
  GA_Sync();
  check_section = "a fence after one put";
  GA_Init_fence();
  put(g_a, 100);
  GA_Fence();
  told(g_a, 100);
  check_section = "a fence after several operations on two arrays";
  GA_Init_fence();
  for (int i = 0; i < kRounds; ++i) {
    put(g_a, i);
    put(g_b, 2 * i);
  }
  put(g_a, 200);
  put(g_b, 300);
  fence_both(g_a, 200, g_b, 300);
  check_section = "fences, one in the other";
  GA_Init_fence();
  put(g_a, 400);
  GA_Init_fence();
  put(g_b, 500);
  GA_Fence();
  put(g_a, 600);
  fence_both(g_a, 600, g_b, 500);
  check_section = "a fence after nothing";
  GA_Init_fence();
  GA_Fence();
  check_section = "sync";
  for (int i = 0; i < kRounds; ++i) {
    const int row = i % kSide, column = rank;
    int at[2] = {row, column}, ld[1] = {1};
    double value = 1000 * i + rank;
    NGA_Put(g_a, at, at, &value, ld);
    GA_Sync();
    for (int each = 0; each < size; ++each) CHECK_EQ(element(g_a, row, each), 1000 * i + each);
    GA_Sync();
  }
  GA_Destroy(g_a);
  GA_Destroy(g_b);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  check_start();
  GA_Initialize();
  CHECK_EQ(MA_init(C_DBL, 1000000, 1000000) != 0, 1);
  rank = GA_Nodeid();
  size = GA_Nnodes();
  patches();
  counter();
  mutexes();
  fences();
  check_section = "the end";
  GA_Terminate();
  MPI_Finalize();
  return 0;
}
