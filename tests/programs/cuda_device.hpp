// SPDX-License-Identifier: BSD-3-Clause
// Memory of the first GPU of the machine, by libcuda.so.1 (CUDA Driver API), which is opened at run time, so that the
// build needs neither CUDA's headers nor a GPU. A call that fails ends the program.
#pragma once

#include <cstddef>
#include <dlfcn.h>

#include "check.hpp"

namespace cuda_device {

inline void* library = nullptr;

template <class... Arguments>
int call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function != nullptr ? function(arguments...) : -1;
}
template <class... Arguments>
void require(const char* name, Arguments... arguments) {
  if (const int code = call(name, arguments...); code != 0)
    check::fail(__FILE__, __LINE__, std::string(name) + " failed (" + std::to_string(code) + ")");
}

// Makes the first GPU's primary context the thread's. Returns false without the library or without a GPU.
inline bool start() {
  library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int device = 0;
  void* context = nullptr;
  if (library == nullptr) return false;
  constexpr int kStubLibrary = 34, kNoDevice = 100;
  if (const int code = call("cuInit", 0U); code == kStubLibrary || code == kNoDevice) return false;
  require("cuInit", 0U);
  require("cuDeviceGet", &device, 0);
  require("cuDevicePrimaryCtxRetain", &context, device);
  require("cuCtxSetCurrent", context);
  return true;
}

inline void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  require("cuMemAlloc_v2", &memory, bytes);
  return memory;
}
inline void* allocate_from_pool(std::size_t bytes) {
  void* memory = nullptr;
  void* const stream = nullptr;
  require("cuMemAllocAsync", &memory, bytes, stream);
  require("cuStreamSynchronize", stream);
  return memory;
}
inline void* allocate_locked(std::size_t bytes) {  // memory of the host
  void* memory = nullptr;
  require("cuMemAllocHost_v2", &memory, bytes);
  return memory;
}
inline void* allocate_managed(std::size_t bytes) {  // for CPU and GPU
  constexpr unsigned kGlobal = 1;
  void* memory = nullptr;
  require("cuMemAllocManaged", &memory, bytes, kGlobal);
  return memory;
}

inline void copy(void* to, const void* from, std::size_t bytes) {
  void* const stream = nullptr;
  require("cuMemcpy", to, from, bytes);
  require("cuStreamSynchronize", stream);
}

}  // namespace cuda_device
