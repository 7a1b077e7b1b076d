// SPDX-License-Identifier: BSD-3-Clause
// Mistakes: invalid windows, and arguments with which no window can be made.
#include "misuse/cases.hpp"

namespace misuse {
namespace {

// Returns the handle of a freed window.
MPI_Win freed_window() {
  MPI_Win freed;
  void* base = nullptr;
  CHECK_MPI(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &freed));
  const MPI_Win copy = freed;
  CHECK_MPI(MPI_Win_free(&freed));
  return copy;
}

const Case kCasesOfWrongWindows[] = {
    {"MPI_Win_shared_query, of a dynamic window", kNowhere, MPI_ERR_RMA_FLAVOR, 0,
     "the window was made by MPI_Win_create_dynamic",
     [](Scene& s) {
       MPI_Win dynamic = MPI_WIN_NULL;
       CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
       CHECK_MPI(MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN));
       CHECK_MPI(MPI_Win_set_name(dynamic, "misused"));
       MPI_Aint bytes = 0;
       int unit = 0;
       void* base = nullptr;
       MISTAKE_AT(0, MPI_Win_shared_query(dynamic, 0, &bytes, &unit, &base));
       CHECK_MPI(MPI_Win_free(&dynamic));
     }},
    {"MPI_Win_attach, to a window that is not dynamic", kNowhere, MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH,
     "the window was not made by MPI_Win_create_dynamic",
     [](Scene& s) { MISTAKE(MPI_Win_attach(s.window, s.values, sizeof s.values)); }},
    {"MPI_Win_detach, from a window that is not dynamic", kNowhere, MPI_ERR_RMA_FLAVOR, MPI_ERR_RMA_ATTACH,
     "the window was not made by MPI_Win_create_dynamic",
     [](Scene& s) { MISTAKE(MPI_Win_detach(s.window, s.values)); }},
    {"MPI_Put, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) { MISTAKE_WITHOUT_WINDOW(MPI_Put(s.values, 1, MPI_INT, s.next, 0, 1, MPI_INT, MPI_WIN_NULL)); }},
    {"MPI_Win_fence, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) { MISTAKE_WITHOUT_WINDOW(MPI_Win_fence(0, MPI_WIN_NULL)); }},
    {"MPI_Win_free, on MPI_WIN_NULL", kNowhere, MPI_ERR_WIN, 0, "the window is MPI_WIN_NULL; make one first",
     [](Scene& s) {
       MPI_Win none = MPI_WIN_NULL;
       MISTAKE_WITHOUT_WINDOW(MPI_Win_free(&none));
     }},
    {"MPI_Put, on a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       const MPI_Win copy = freed_window();
       MISTAKE_WITHOUT_WINDOW(MPI_Put(s.values, 1, MPI_INT, 0, 0, 1, MPI_INT, copy));
     }},
    {"MPI_Win_lock, on a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       const MPI_Win copy = freed_window();
       MISTAKE_WITHOUT_WINDOW(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, copy));
     }},
    {"MPI_Win_free, of a window that was freed", kNowhere, MPI_ERR_WIN, 0,
     "the window has been freed; do not keep copies of its handle",
     [](Scene& s) {
       MPI_Win again = freed_window();
       MISTAKE_WITHOUT_WINDOW(MPI_Win_free(&again));
     }},
    {"MPI_Win_create, size negative", kNowhere, MPI_ERR_SIZE, 0, "size is -1; it may not be negative",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, size negative", kNowhere, MPI_ERR_SIZE, 0, "size is -1; it may not be negative",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, displacement unit zero", kNowhere, MPI_ERR_DISP, 0, "displacement unit is 0; it must be positive",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, 16, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, displacement unit negative", kNowhere, MPI_ERR_DISP, 0,
     "displacement unit is -4; it must be positive",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, -4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, null memory", kNowhere, MPI_ERR_BASE, 0, "the base address is null, and the size 16 bytes",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(nullptr, 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_create, communicator null", kNowhere, MPI_ERR_COMM, 0, "the communicator is MPI_COMM_NULL",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, 16, 1, MPI_INFO_NULL, MPI_COMM_NULL, &made)))
         MPI_Win_free(&made);
     }},
    {"MPI_Win_allocate, on an intercommunicator", kNowhere, MPI_ERR_COMM, 0, "a window needs an intracommunicator",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       MPI_Comm inter;
       CHECK_MPI(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, s.next, 5, &inter));
       CHECK_MPI(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, 1, MPI_INFO_NULL, inter, &base, &made))) MPI_Win_free(&made);
       CHECK_MPI(MPI_Comm_free(&inter));
     }},
    {"MPI_Win_allocate, same_disp_unit promised and not kept", kNowhere, MPI_ERR_INFO, MPI_ERR_DISP,
     "same_disp_unit was promised, but rank 1 has 2 where rank 0 has 1",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       void* base = nullptr;
       MPI_Info info;
       CHECK_MPI(MPI_Info_create(&info));
       CHECK_MPI(MPI_Info_set(info, "same_disp_unit", "true"));
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_allocate(16, s.rank + 1, info, MPI_COMM_WORLD, &base, &made)))
         MPI_Win_free(&made);
       CHECK_MPI(MPI_Info_free(&info));
     }},
    {"MPI_Win_create, same_size promised and not kept", kNowhere, MPI_ERR_INFO, MPI_ERR_SIZE,
     "same_size was promised, but rank 1 has 32 where rank 0 has 16",
     [](Scene& s) {
       MPI_Win made = MPI_WIN_NULL;
       MPI_Info info;
       CHECK_MPI(MPI_Info_create(&info));
       CHECK_MPI(MPI_Info_set(info, "same_size", "true"));
       if (!MISTAKE_WITHOUT_WINDOW(MPI_Win_create(s.values, 16 * (s.rank + 1), 1, info, MPI_COMM_WORLD, &made)))
         MPI_Win_free(&made);
       CHECK_MPI(MPI_Info_free(&info));
     }},
};

}  // namespace

Cases wrong_windows() { return kCasesOfWrongWindows; }

}  // namespace misuse
