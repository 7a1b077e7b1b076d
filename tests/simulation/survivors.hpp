// SPDX-License-Identifier: BSD-3-Clause
// The interface between survivors.cpp and the simulation.
#pragma once

extern "C" {
void* simulation_board();                   // a megabyte of zeros that all ranks share
bool simulation_lives(int rank);            // not so after its death
bool simulation_has_met_a_fault(int rank);  // its connections, its host, or itself
void simulation_meet();                     // sleeps until each living rank has called it as often
void simulation_sleep();                    // until the next tenth of a second
void simulation_end_faults();               // there will be no more
}
