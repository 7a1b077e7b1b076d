// SPDX-License-Identifier: BSD-3-Clause
// PerThread<T>: an object for each thread, made at the thread's first use of it and destroyed at the thread's end (not
// at the end of the process). The type identifies the object.
//
// It stands in place of a thread_local variable with a destructor. The C library registers such a destructor under the
// dynamic linker's lock, which a thread holds while it runs the constructors of a library that it loads (dlopen(3)). If
// that thread waits in an MPI call meanwhile, threads that make its operations progress must not need the lock.
//
// Thread safety: any thread. Cost: one load; an allocation at the first use. Memory: the object, and a key of POSIX
// threads; without a free key the object is not destroyed.
#pragma once

#include <pthread.h>

namespace farside {

template <class T>
class PerThread {
 public:
  static T& here() {
    if (object_ == nullptr) [[unlikely]] make();
    return *object_;
  }

 private:
  [[gnu::noinline, gnu::cold]] static void make() {
    static const pthread_key_t key = [] {
      pthread_key_t made{};
      return ::pthread_key_create(&made, destroy) == 0 ? made : ~pthread_key_t{};
    }();
    object_ = new T();
    (void)::pthread_setspecific(key, object_);
  }
  static void destroy(void* object) {
    delete static_cast<T*>(object);
    object_ = nullptr;
  }

  // In static thread-local storage, whose access takes no lock in any version of the C library.
  [[gnu::tls_model("initial-exec")]] static inline thread_local constinit T* object_ = nullptr;
};

}  // namespace farside
