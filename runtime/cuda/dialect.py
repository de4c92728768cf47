"""CUDA C++, as NVRTC and nvcc take it; nothing but the prelude tells them apart."""

from __future__ import annotations

from ...codegen.c.dialect import Dialect

CUDA = Dialect(
    name="cuda",
    suffix=".cu",
    headers=(),
    math_header="",
    barrier="__syncthreads();",
    intrinsics_prelude="",
    stream_fence="",
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
    kernel_open='extern "C" __global__ void __launch_bounds__({threads}) ',
    shared_array="__shared__ __align__(16) ",
)
