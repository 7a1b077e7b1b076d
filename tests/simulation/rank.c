// SPDX-License-Identifier: BSD-3-Clause
// The entry of a rank's copy of the program, whose own main() is not visible outside of it.
int main(int, char**);

__attribute__((visibility("default"))) int simulated_main(int count, char** words) { return main(count, words); }
