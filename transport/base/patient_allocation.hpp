// SPDX-License-Identifier: BSD-3-Clause
// While an object of this class lives, each allocation by operator new in its thread that lacks memory is tried again
// for up to a second: where something has begun that can neither be repeated nor be left, for instance a protocol in
// which other ranks wait for this one. (patiently(), in result.hpp, repeats work that can be repeated, and costs
// nothing until memory lacks.)
//
// It acts as the new handler of the process (std::set_new_handler), and calls the program's own handler elsewhere. An
// operator new of the program that calls no new handler is not tried again.
//
// Thread safety: any. Cost: some 5 ns.
#pragma once

namespace farside {

class PatientAllocation {
 public:
  PatientAllocation();
  PatientAllocation(const PatientAllocation&) = delete;
  PatientAllocation& operator=(const PatientAllocation&) = delete;
  ~PatientAllocation();

 private:
  static void on_no_memory();

  const int before_;
};

}  // namespace farside
