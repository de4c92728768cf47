"""Dialect CUDA C++, for NVRTC and nvcc. Only the prelude differs between the two."""

from __future__ import annotations

from ...codegen.text.dialect import Dialect

CUDA = Dialect(
    name="cuda",
    suffix=".cu",
    headers=(),
    math_header="",
    barrier="__syncthreads();",
    intrinsics_prelude="",
    stream_fence="",
    integers_prelude="""\
#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MAX 127
#define INT8_MIN (-128)
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT8_MAX 255
#define UINT16_MAX 65535
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ull
#endif
""",
    prelude="""\
#if defined(__CUDACC_RTC__)
typedef int int32_t;
typedef long long int64_t;
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define INT64_MAX 9223372036854775807LL
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <math.h>
#include <stdint.h>
#endif""",
    unrolled_loop="#pragma unroll {copies}",
    kernel_open='extern "C" __global__ void __launch_bounds__({threads}) ',
    shared_array="__shared__ __align__(16) ",
)
