// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: wrong arguments, each in an epoch in which the right call is allowed.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

// Makes a window of this rank alone. The caller frees it.
MPI_Win lonely_window() {
  MPI_Win lonely;
  void* base = nullptr;
  CHECK_MPI(MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, &base, &lonely));
  CHECK_MPI(MPI_Win_set_errhandler(lonely, MPI_ERRORS_RETURN));
  CHECK_MPI(MPI_Win_set_name(lonely, "misused"));
  return lonely;
}

const Case kCasesOfArguments[] = {
    {"MPI_Put, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.put(s.size)); }},
    {"MPI_Get, rank negative", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL", [](Scene& s) { MISTAKE_AT(-77, s.get(-77)); }},
    {"MPI_Fetch_and_op, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.fetch_and_op(s.size)); }},
    {"MPI_Rget, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, s.rget(s.size)); }},
    {"MPI_Win_flush, rank too large", kAllLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_flush(s.size, s.window)); }},
    {"MPI_Win_lock, rank too large", kNowhere, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_lock(MPI_LOCK_SHARED, s.size, 0, s.window)); }},
    {"MPI_Win_unlock, rank too large", kLocked, MPI_ERR_RANK, 0,
     "is not in the window's group of 2; use 0 to 1 or MPI_PROC_NULL",
     [](Scene& s) { MISTAKE_AT(s.size, MPI_Win_unlock(s.size, s.window)); }},
    {"MPI_Put, origin count negative", kAllLocked, MPI_ERR_COUNT, 0, "the origin count is -1; it may not be negative",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, -1, MPI_INT, s.next, 0, 1, MPI_INT, s.window)); }},
    {"MPI_Get, target count negative", kAllLocked, MPI_ERR_COUNT, 0, "the target count is -1; it may not be negative",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Get(s.result, 1, MPI_INT, s.next, 0, -1, MPI_INT, s.window)); }},
    {"MPI_Get_accumulate, result count negative", kAllLocked, MPI_ERR_COUNT, 0,
     "the result count is -1; it may not be negative",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get_accumulate(s.values, 1, MPI_INT, s.result, -1, MPI_INT, s.next, 0, 1, MPI_INT,
                                             MPI_SUM, s.window));
     }},
    {"MPI_Put, displacement negative", kAllLocked, MPI_ERR_DISP, MPI_ERR_RMA_RANGE,
     "the target displacement is -1; it may not be negative",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, -1, 1, MPI_INT, s.window)); }},
    {"MPI_Put, displacement negative, of nothing", kAllLocked, MPI_ERR_DISP, MPI_ERR_RMA_RANGE,
     "the target displacement is -1; it may not be negative",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 0, MPI_INT, s.next, -1, 0, MPI_INT, s.window)); }},
    {"MPI_Put, origin datatype null", kAllLocked, MPI_ERR_TYPE, 0, "the datatype is MPI_DATATYPE_NULL",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_DATATYPE_NULL, s.next, 0, 1, MPI_INT, s.window)); }},
    {"MPI_Get, target datatype null", kAllLocked, MPI_ERR_TYPE, 0, "the datatype is MPI_DATATYPE_NULL",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Get(s.result, 1, MPI_INT, s.next, 0, 1, MPI_DATATYPE_NULL, s.window)); }},
    {"MPI_Put, datatype not committed", kAllLocked, MPI_ERR_TYPE, 0, "the datatype is not committed (MPI_Type_commit)",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, type, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, datatype not committed", kAllLocked, MPI_ERR_TYPE, 0,
     "the datatype is not committed (MPI_Type_commit)",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, type, s.next, 0, 1, type, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, operation null", kAllLocked, MPI_ERR_OP, 0, "the operation is not a predefined one",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_OP_NULL, s.window));
     }},
    {"MPI_Accumulate, operation of the user", kAllLocked, MPI_ERR_OP, 0, "the operation is not a predefined one",
     [](Scene& s) {
       MPI_Op own;
       CHECK_MPI(MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, own, s.window));
       CHECK_MPI(MPI_Op_free(&own));
     }},
    {"MPI_Fetch_and_op, operation of the user", kAllLocked, MPI_ERR_OP, 0, "the operation is not a predefined one",
     [](Scene& s) {
       MPI_Op own;
       CHECK_MPI(MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own));
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, MPI_INT, s.next, 0, own, s.window));
       CHECK_MPI(MPI_Op_free(&own));
     }},
    {"MPI_Accumulate, MPI_NO_OP", kAllLocked, MPI_ERR_OP, 0,
     "MPI_NO_OP is only for the calls that fetch; use MPI_Get_accumulate",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_NO_OP, s.window));
     }},
    {"MPI_Accumulate, bits of a double", kAllLocked, MPI_ERR_OP, MPI_ERR_TYPE, "band is not defined for double",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_DOUBLE, s.next, 0, 1, MPI_DOUBLE, MPI_BAND, s.window));
     }},
    {"MPI_Accumulate, location of an int", kAllLocked, MPI_ERR_OP, MPI_ERR_TYPE, "minloc is not defined for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_MINLOC, s.window));
     }},
    {"MPI_Accumulate, datatype of mixed basic types", kAllLocked, MPI_ERR_TYPE, 0,
     "the target datatype mixes basic types; an accumulate needs one",
     [](Scene& s) {
       const int lengths[2] = {1, 1};
       const MPI_Aint places[2] = {0, 8};
       const MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE};
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_create_struct(2, lengths, places, types, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, type, s.next, 0, 1, type, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Accumulate, other basic type at the target", kAllLocked, MPI_ERR_TYPE, 0,
     "the origin datatype is not made of",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 1, MPI_INT, s.next, 0, 1, MPI_FLOAT, MPI_SUM, s.window));
     }},
    {"MPI_Get_accumulate, other basic type of the result", kAllLocked, MPI_ERR_TYPE, 0,
     "the result datatype is not made of",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Get_accumulate(s.values, 1, MPI_INT, s.result, 1, MPI_FLOAT, s.next, 0, 1, MPI_INT,
                                             MPI_SUM, s.window));
     }},
    {"MPI_Fetch_and_op, derived datatype", kAllLocked, MPI_ERR_TYPE, 0, "the datatype must be a predefined one",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_contiguous(2, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, type, s.next, 0, MPI_SUM, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Compare_and_swap, of a double", kAllLocked, MPI_ERR_TYPE, 0, "the datatype must be a predefined integer",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Compare_and_swap(s.values, s.values + 2, s.result, MPI_DOUBLE, s.next, 0, s.window));
     }},
    {"MPI_Put, null buffer", kAllLocked, MPI_ERR_BUFFER, 0, "the origin buffer is null, for 4 bytes; give it memory",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(nullptr, 1, MPI_INT, s.next, 0, 1, MPI_INT, s.window)); }},
    {"MPI_Get, null buffer", kAllLocked, MPI_ERR_BUFFER, 0, "the origin buffer is null, for 4 bytes; give it memory",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Get(nullptr, 1, MPI_INT, s.next, 0, 1, MPI_INT, s.window)); }},
    {"MPI_Fetch_and_op, null result", kAllLocked, MPI_ERR_BUFFER, 0,
     "the result buffer is null, for 4 bytes; give it memory",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, nullptr, MPI_INT, s.next, 0, MPI_SUM, s.window)); }},
    {"MPI_Compare_and_swap, null compare buffer", kAllLocked, MPI_ERR_BUFFER, 0,
     "the compare buffer is null, for 4 bytes; give it memory",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Compare_and_swap(s.values, nullptr, s.result, MPI_INT, s.next, 0, s.window));
     }},
    {"MPI_Win_lock, lock type", kNowhere, MPI_ERR_LOCKTYPE, 0,
     "12345 is neither MPI_LOCK_SHARED nor MPI_LOCK_EXCLUSIVE",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(12345, s.next, 0, s.window)); }},
    {"MPI_Win_lock, an assertion of fence", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Win_lock(MPI_LOCK_SHARED, s.next, MPI_MODE_NOPRECEDE, s.window)); }},
    {"MPI_Win_lock_all, an assertion of post", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) { MISTAKE(MPI_Win_lock_all(MPI_MODE_NOPUT, s.window)); }},
    {"MPI_Win_fence, an assertion of lock", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOSTORE, NOPUT, NOPRECEDE, NOSUCCEED (",
     [](Scene& s) { MISTAKE(MPI_Win_fence(MPI_MODE_NOCHECK, s.window)); }},
    {"MPI_Win_fence, no assertion at all", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: ", [](Scene& s) { MISTAKE(MPI_Win_fence(1 << 30, s.window)); }},
    {"MPI_Win_post, an assertion of fence", kNowhere, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK, NOSTORE, NOPUT (",
     [](Scene& s) { MISTAKE(MPI_Win_post(s.to_next, MPI_MODE_NOSUCCEED, s.window)); }},
    {"MPI_Win_start, an assertion of post", kPosted, MPI_ERR_ASSERT, 0,
     "is not one of this call; allowed: MPI_MODE_NOCHECK (",
     [](Scene& s) { MISTAKE(MPI_Win_start(s.to_next, MPI_MODE_NOPUT, s.window)); }},
    {"MPI_Win_post, group null", kNowhere, MPI_ERR_GROUP, 0, "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY",
     [](Scene& s) { MISTAKE(MPI_Win_post(MPI_GROUP_NULL, 0, s.window)); }},
    {"MPI_Win_start, group null", kNowhere, MPI_ERR_GROUP, 0, "the group is MPI_GROUP_NULL; use MPI_GROUP_EMPTY",
     [](Scene& s) { MISTAKE(MPI_Win_start(MPI_GROUP_NULL, 0, s.window)); }},
    {"MPI_Win_post, to a process without the window", kNowhere, MPI_ERR_GROUP, MPI_ERR_RANK,
     "member 0 of the group is not in the window's group; make it from that group",
     [](Scene& s) {
       MPI_Win lonely = lonely_window();
       MISTAKE(MPI_Win_post(s.to_next, 0, lonely));
       CHECK_MPI(MPI_Win_free(&lonely));
     }},
    {"MPI_Win_start, to a process without the window", kNowhere, MPI_ERR_GROUP, MPI_ERR_RANK,
     "member 0 of the group is not in the window's group; make it from that group",
     [](Scene& s) {
       MPI_Win lonely = lonely_window();
       MISTAKE(MPI_Win_start(s.to_next, 0, lonely));
       CHECK_MPI(MPI_Win_free(&lonely));
     }},
};

}  // namespace

Cases arguments() { return kCasesOfArguments; }

}  // namespace misuse
