"""Programs of others, as they are: Taichi's names, and what it shows on a screen, without one."""
