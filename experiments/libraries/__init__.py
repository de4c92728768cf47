"""The sequences as users of other libraries write them, for comparison: one module a library.

Every function takes the arguments of the library sequence of its name (kernels/library/) in the same order, and returns its
outputs.
On GPUs the sequences are calls of a BLAS instead (blas_calls.py), which gpu_cupy.py and gpu_torch.py provide.
"""
