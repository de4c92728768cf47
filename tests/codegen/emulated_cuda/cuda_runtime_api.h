/* What exported programs use of CUDA's runtime, for C; behind kernel.cu it is defined over the emulator (runtime.h). */
#ifndef EMULATED_CUDA_RUNTIME_API_H
#define EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>

typedef enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorLaunchFailure = 719 } cudaError_t;
typedef enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 } cudaMemcpyKind;
typedef struct emulated_stream *cudaStream_t;

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cudaMalloc(void **place, size_t n_bytes);
cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind);
cudaError_t cudaDeviceSynchronize(void);
const char *cudaGetErrorString(cudaError_t error);
#ifdef __cplusplus
}
#endif

#endif
