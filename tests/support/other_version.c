/* SPDX-License-Identifier: BSD-3-Clause
   Stands in place of libfarside-RUNTIME.so on one host: a library of another version. It interposes nothing. */
const char* farside_version(void) { return "9.9.9 (protocol 99)"; }
