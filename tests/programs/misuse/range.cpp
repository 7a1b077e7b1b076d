// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: accesses beyond the window, and data that does not fit.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

const Case kCasesOfRange[] = {
    {"MPI_Put, one element past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window)); }},
    {"MPI_Put, one byte past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 5, MPI_BYTE, s.next, s.kInts - 1, 5, MPI_BYTE, s.window)); }},
    {"MPI_Put, more than the window holds", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, s.kInts + 1, MPI_INT, s.next, 0, s.kInts + 1, MPI_INT, s.window));
     }},
    {"MPI_Put, a displacement that overflows", kAllLocked, MPI_ERR_RMA_RANGE, MPI_ERR_DISP,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Put(s.values, 1, MPI_INT, s.next, MPI_Aint{1} << 62, 1, MPI_INT, s.window));
     }},
    {"MPI_Get, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Get(s.result, s.kInts, MPI_INT, s.next, 1, s.kInts, MPI_INT, s.window)); }},
    {"MPI_Accumulate, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 2, MPI_INT, s.next, s.kInts - 1, 2, MPI_INT, MPI_SUM, s.window));
     }},
    {"MPI_Fetch_and_op, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Fetch_and_op(s.values, s.result, MPI_INT, s.next, s.kInts, MPI_SUM, s.window));
     }},
    {"MPI_Compare_and_swap, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Compare_and_swap(s.values, s.values + 1, s.result, MPI_INT, s.next, s.kInts, s.window));
     }},
    {"MPI_Rput, past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0, "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MISTAKE_REQUEST(s.next, MPI_Rput(s.values, 1, MPI_INT, s.next, s.kInts, 1, MPI_INT, s.window, &s.request));
     }},
    {"MPI_Put, the last block of a strided type past the end", kAllLocked, MPI_ERR_RMA_RANGE, 0,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_vector(2, 1, s.kInts, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Put(s.values, 2, MPI_INT, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Get, a block of a derived type before the beginning", kAllLocked, MPI_ERR_RMA_RANGE, 0,
     "beyond the 256 bytes of rank ",
     [](Scene& s) {
       const int places[2] = {0, -1};
       MPI_Datatype type;
       CHECK_MPI(MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &type));
       CHECK_MPI(MPI_Type_commit(&type));
       MISTAKE_AT(s.next, MPI_Get(s.result, 2, MPI_INT, s.next, 0, 1, type, s.window));
       CHECK_MPI(MPI_Type_free(&type));
     }},
    {"MPI_Put, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Put(s.values, 4, MPI_INT, s.next, 0, 2, MPI_INT, s.window)); }},
    {"MPI_Get, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) { MISTAKE_AT(s.next, MPI_Get(s.result, 2, MPI_INT, s.next, 0, 4, MPI_INT, s.window)); }},
    {"MPI_Accumulate, more sent than there is room for", kAllLocked, MPI_ERR_TRUNCATE, 0,
     "bytes are sent where count and datatype leave room for",
     [](Scene& s) {
       MISTAKE_AT(s.next, MPI_Accumulate(s.values, 4, MPI_INT, s.next, 0, 2, MPI_INT, MPI_SUM, s.window));
     }},
};

}  // namespace

Cases range() { return kCasesOfRange; }

}  // namespace misuse
