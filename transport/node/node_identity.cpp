// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/node_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace farside {

std::uint64_t node_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  struct stat processes {};
  if (stat("/proc/thread-self/ns/pid", &processes) != 0) processes.st_ino = 0;
  const std::string all =
      boot + ' ' + host.data() + ' ' + std::to_string(processes.st_ino) + ' ' + std::to_string(geteuid());
  std::uint64_t value = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : all) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value | 1;
}

}  // namespace farside
