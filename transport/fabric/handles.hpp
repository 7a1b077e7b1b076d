// SPDX-License-Identifier: BSD-3-Clause
// Owners of libfabric objects, which close them when they are destroyed.
#pragma once

#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "transport/base/result.hpp"

namespace farside {

struct CloseFid {
  template <class T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <class T>
using FabricHandle = std::unique_ptr<T, CloseFid>;

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using InfoHandle = std::unique_ptr<fi_info, FreeInfo>;

// `code` is negative, as libfabric returns it.
inline Error fabric_error(ErrorKind kind, std::string_view tried, std::int64_t code) {
  return Error{kind, fmt::format("{}: {} (libfabric error {})", tried, fi_strerror(static_cast<int>(-code)), -code)};
}

// Takes the object that a call of libfabric opens, open(&object), or turns its error code into kNoRoute.
template <class T, class Open>
Status open_step(const char* what, FabricHandle<T>& out, Open&& open) {
  T* opened = nullptr;
  if (const int code = open(&opened); code != 0) return fabric_error(ErrorKind::kNoRoute, what, code);
  out.reset(opened);
  return {};
}

}  // namespace farside
