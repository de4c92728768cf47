"""Names of Taichi 1.7 that this package lacks, with the kind of feature that each belongs to."""

from __future__ import annotations

from typing import Final

# What is missing: the sentence's subject, then its names in `taichi` and in its modules.
_MISSING: Final = {
    "textures, which Taichi has on Vulkan and OpenGL alone,": "Texture Format types.texture types.rw_texture types.texture_type",
    "threads and shared memory of one block": (
        "simt global_thread_idx cache_read_only mesh_local mesh_patch_idx"
    ),
    "modules that are compiled ahead of time": "aot",
    "meshes": "Mesh MeshInstance",
    "measurements of kernels": "profiler.query_kernel_profiler_info profiler.CuptiMetric profiler.collect_kernel_profiler_metrics",
}

# Why a name is not here, as the end of a sentence.
REASONS: Final = {
    name: f"{subject} are not there yet"
    for subject, names in _MISSING.items()
    for name in names.split()
}

# Names of `taichi.math`, for `from taichi.math import *`.
_MATH: Final = (
    "acos asin atan2 cconj cdiv ceil cexp cinv clamp clog clz cmul cos cpow cross csqrt degrees determinant distance dot e"
    " exp eye floor fract inf inverse isinf isnan ivec2 ivec3 ivec4 length log log2 mat2 mat3 mat4 max min mix mod nan"
    " normalize pi popcnt pow radians reflect refract rot_by_axis rot_yaw_pitch_roll rotation2d rotation3d round scale sign sin"
    " smoothstep sqrt step tan tanh translate uvec2 uvec3 uvec4 vdir vec2 vec3 vec4"
)
MATH: Final = tuple(_MATH.split())
