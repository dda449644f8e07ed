// The rest of what -fsanitize=thread calls: block copies, virtual tables, and the atomics of
// standard library code in the same files (shared_ptr, mutexes), which are done as they stand.
#include <cstring>

#include "tf_emulator.h"

#if defined(TF_EMULATOR_INSTRUMENTED)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    tf_emulator::check_read(from, bytes);
    tf_emulator::check_write(to, bytes);
  }
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) {
    tf_emulator::check_read(from, bytes);
    tf_emulator::check_write(to, bytes);
  }
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  if (bytes > 0) tf_emulator::check_write(to, bytes);
  return std::memset(to, value, bytes);
}

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// Sequentially consistent is at least what any caller asks for.
#define TF_EMULATOR_ATOMIC_OP(bits, type, op)                                \
  type __tsan_atomic##bits##_##op(volatile type* address, type value, int) { \
    return __atomic_##op(address, value, __ATOMIC_SEQ_CST);                  \
  }
#define TF_EMULATOR_ATOMICS(bits, type)                                                     \
  type __tsan_atomic##bits##_load(const volatile type* address, int) {                      \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                      \
  }                                                                                         \
  void __tsan_atomic##bits##_store(volatile type* address, type value, int) {               \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                     \
  }                                                                                         \
  type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) {            \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                           \
  }                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile type* address, type* expected, \
                                                    type value, int, int) {                 \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST,   \
                                       __ATOMIC_SEQ_CST);                                   \
  }                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile type* address, type* expected,   \
                                                  type value, int, int) {                   \
    return __atomic_compare_exchange_n(address, expected, value, true, __ATOMIC_SEQ_CST,    \
                                       __ATOMIC_SEQ_CST);                                   \
  }                                                                                         \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_add)                                              \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_sub)                                              \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_and)                                              \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_or)                                               \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_xor)                                              \
  TF_EMULATOR_ATOMIC_OP(bits, type, fetch_nand)
TF_EMULATOR_ATOMICS(8, unsigned char)
TF_EMULATOR_ATOMICS(16, unsigned short)
TF_EMULATOR_ATOMICS(32, unsigned)
TF_EMULATOR_ATOMICS(64, unsigned long)
}
#endif
