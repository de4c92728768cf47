"""The engine: what runs the kernels that are called outside of a recording."""
