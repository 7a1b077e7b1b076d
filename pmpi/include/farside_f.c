/* SPDX-License-Identifier: BSD-3-Clause
   Notified access from Fortran (farside.f90) and Python (ctypes): the functions of farside.h with handles of Fortran.
     mpicc -shared -fPIC farside_f.c -o libfarside_f.so */
#include "farside.h"

#define RETURN(call)                    \
  do {                                  \
    const int code = call;              \
    if (ierror != NULL) *ierror = code; \
  } while (0)
#define THERE int target, MPI_Aint at, int target_count, MPI_Fint target_type
#define TO_THERE target, at, target_count, MPI_Type_f2c(target_type)
#define FROM origin, count, MPI_Type_f2c(type)
#define WINDOW int notify, MPI_Fint win
#define ON_WINDOW notify, MPI_Win_f2c(win)
#define WITH_REQUEST(call)            \
  MPI_Request own = MPI_REQUEST_NULL; \
  RETURN(call);                       \
  *request = MPI_Request_c2f(own)

void farside_set_num_notify_f(MPI_Fint win, MPI_Fint info, int number, int* ierror) {
  RETURN(MPIX_Win_set_num_notify(MPI_Win_f2c(win), MPI_Info_f2c(info), number));
}
void farside_get_num_notify_f(MPI_Fint win, int target, int* number, int* ierror) {
  RETURN(MPIX_Win_get_num_notify(MPI_Win_f2c(win), target, number));
}
void farside_get_notify_value_f(MPI_Fint win, int notify, MPI_Count* value, int* ierror) {
  RETURN(MPIX_Win_get_notify_value(MPI_Win_f2c(win), notify, value));
}
void farside_reset_notify_value_f(MPI_Fint win, int notify, MPI_Count* value, int* ierror) {
  RETURN(MPIX_Win_reset_notify_value(MPI_Win_f2c(win), notify, value));
}
void farside_wait_notify_f(MPI_Fint win, int notify, MPI_Count threshold, int* ierror) {
  RETURN(MPIX_Win_wait_notify(MPI_Win_f2c(win), notify, threshold));
}
void farside_test_notify_f(MPI_Fint win, int notify, MPI_Count threshold, int* flag, int* ierror) {
  RETURN(MPIX_Win_test_notify(MPI_Win_f2c(win), notify, threshold, flag));
}
void farside_put_notify_f(const void* origin, int count, MPI_Fint type, THERE, WINDOW, int* ierror) {
  RETURN(MPIX_Put_notify(FROM, TO_THERE, ON_WINDOW));
}
void farside_get_notify_f(void* origin, int count, MPI_Fint type, THERE, WINDOW, int* ierror) {
  RETURN(MPIX_Get_notify(FROM, TO_THERE, ON_WINDOW));
}
void farside_accumulate_notify_f(const void* origin, int count, MPI_Fint type, THERE, MPI_Fint op, WINDOW,
                                 int* ierror) {
  RETURN(MPIX_Accumulate_notify(FROM, TO_THERE, MPI_Op_f2c(op), ON_WINDOW));
}
void farside_get_accumulate_notify_f(const void* origin, int count, MPI_Fint type, void* result, int result_count,
                                     MPI_Fint result_type, THERE, MPI_Fint op, WINDOW, int* ierror) {
  RETURN(MPIX_Get_accumulate_notify(FROM, result, result_count, MPI_Type_f2c(result_type), TO_THERE, MPI_Op_f2c(op),
                                    ON_WINDOW));
}
void farside_rput_notify_f(const void* origin, int count, MPI_Fint type, THERE, WINDOW, MPI_Fint* request,
                           int* ierror) {
  WITH_REQUEST(MPIX_Rput_notify(FROM, TO_THERE, ON_WINDOW, &own));
}
void farside_rget_notify_f(void* origin, int count, MPI_Fint type, THERE, WINDOW, MPI_Fint* request, int* ierror) {
  WITH_REQUEST(MPIX_Rget_notify(FROM, TO_THERE, ON_WINDOW, &own));
}
void farside_raccumulate_notify_f(const void* origin, int count, MPI_Fint type, THERE, MPI_Fint op, WINDOW,
                                  MPI_Fint* request, int* ierror) {
  WITH_REQUEST(MPIX_Raccumulate_notify(FROM, TO_THERE, MPI_Op_f2c(op), ON_WINDOW, &own));
}
void farside_rget_accumulate_notify_f(const void* origin, int count, MPI_Fint type, void* result, int result_count,
                                      MPI_Fint result_type, THERE, MPI_Fint op, WINDOW, MPI_Fint* request,
                                      int* ierror) {
  WITH_REQUEST(MPIX_Rget_accumulate_notify(FROM, result, result_count, MPI_Type_f2c(result_type), TO_THERE,
                                           MPI_Op_f2c(op), ON_WINDOW, &own));
}
