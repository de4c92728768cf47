/* CUDA's runtime over the emulator: included behind its header and before kernel.cu. Memory of the GPU is what cudaMalloc gave, so
 * every access of a kernel is checked against it, and a launch is given its arguments by pointers, as the driver is. */
#include "cuda_runtime_api.h"

enum { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

namespace emulated {
enum { MAX_ARRAYS = 64, MARGIN_BYTES = 256, UNASKED_BYTES = 48 << 10 };
struct Array {
  char *begin;
  size_t n_bytes;
};
static Array arrays[MAX_ARRAYS];
static int n_arrays;
static const void *allowed_kernel;
static size_t allowed_bytes;

EMULATOR_OWN static bool holds(const void *p, size_t n_bytes) {
  for (int k = 0; k < n_arrays; k++)
    if ((char *)p >= arrays[k].begin && (char *)p + n_bytes <= arrays[k].begin + arrays[k].n_bytes) return true;
  return false;
}

template <int... K> struct Numbers {};
template <int N, int... K> struct Counted : Counted<N - 1, N - 1, K...> {};
template <int... K> struct Counted<0, K...> {
  typedef Numbers<K...> type;
};
template <class... A, int... K>
EMULATOR_OWN void call(void (*kernel)(A...), void **args, Numbers<K...>) {
  kernel(*(A *)args[K]...);
}
} // namespace emulated

extern "C" {
EMULATOR_OWN cudaError_t cudaMalloc(void **place, size_t n_bytes) {
  using namespace emulated;
  if (n_arrays == MAX_ARRAYS) return cudaErrorMemoryAllocation;
  char *begin = (char *)aligned_alloc(256, (n_bytes / 256 + 3) * 256) + MARGIN_BYTES;
  memset(begin, 0xff, n_bytes);
  arrays[n_arrays++] = Array{begin, n_bytes};
  *place = begin;
  return cudaSuccess;
}
EMULATOR_OWN cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind) {
  bool to_gpu = kind == cudaMemcpyHostToDevice;
  if (!emulated::holds(to_gpu ? to : from, n_bytes) || emulated::holds(to_gpu ? from : to, 1)) return cudaErrorInvalidValue;
  memcpy(to, from, n_bytes);
  return cudaSuccess;
}
EMULATOR_OWN cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
EMULATOR_OWN const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorLaunchFailure ? emulator::message : error ? "refused" : "no error";
}
}

template <class... A>
EMULATOR_OWN cudaError_t cudaFuncSetAttribute(void (*kernel)(A...), int attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  emulated::allowed_kernel = (const void *)kernel;
  emulated::allowed_bytes = (size_t)value;
  return cudaSuccess;
}

template <class... A>
EMULATOR_OWN cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                          cudaStream_t) {
  using namespace emulated;
  bool is_allowed = (const void *)kernel == allowed_kernel && shared_bytes <= allowed_bytes;
  if (shared_bytes > UNASKED_BYTES && !is_allowed) return cudaErrorInvalidValue;
  emulator::begin();
  for (int k = 0; k < n_arrays; k++) emulator::array(arrays[k].begin, arrays[k].n_bytes, 4, "memory of cudaMalloc");
  emulator::launch("kernel", grid, block, shared_bytes,
                   [=]() EMULATOR_OWN { call(kernel, args, typename Counted<sizeof...(A)>::type()); });
  emulator::end();
  return emulator_error() ? cudaErrorLaunchFailure : cudaSuccess;
}

/* The emulator itself says where blocks wait for one that cannot begin. */
template <class... A>
EMULATOR_OWN cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(A...), dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                                     cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, args, shared_bytes, stream);
}
