// How the harness calls kernels, for the table of kernels that it generates (GcEntry in runtime.h).
#pragma once

#include <utility>

template <class... Types, size_t... index>
inline void gc_call_with(void (*kernel)(Types...), void** arguments, std::index_sequence<index...>) {
  kernel(*static_cast<Types*>(arguments[index])...);
}

template <class... Types>
constexpr int gc_arity(void (*)(Types...)) {
  return sizeof...(Types);
}

// Calls a kernel; `arguments` are pointers to its arguments.
template <auto kernel>
void gc_call(void** arguments) {
  gc_call_with(kernel, arguments, std::make_index_sequence<gc_arity(kernel)>{});
}
