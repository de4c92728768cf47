"""Two flows of an incompressible fluid: in a cavity with a moving lid, and through a channel until it is steady."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from .ported import Ported, parallel

nd: Any = types.ndarray()
_NU = 0.1  # viscosity; the density is 1
_FORCE = 1.0  # along the channel
_STEADY = 0.001  # relative change of the flow


def _spacing(shape: tuple[int, ...]) -> tuple[float, float, float]:
    """The distances of points along x and y, and the time step."""
    ny, nx = shape
    return 2.0 / (nx - 1), 2.0 / (ny - 1), 0.1 / ((nx - 1) * (ny - 1))


# --- a cavity -------------------------------------------------------------------------------------


@kernel
def divergence(u: nd, v: nd, b: nd, dx: float, dy: float, dt: float) -> None:
    """The right side of the equation of the pressure."""
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            ux = (u[i, j + 1] - u[i, j - 1]) / (2.0 * dx)
            uy = (u[i + 1, j] - u[i - 1, j]) / (2.0 * dy)
            vx = (v[i, j + 1] - v[i, j - 1]) / (2.0 * dx)
            vy = (v[i + 1, j] - v[i - 1, j]) / (2.0 * dy)
            b[i, j] = (ux + vy) / dt - ux * ux - 2.0 * uy * vx - vy * vy


@kernel
def relax(p: nd, old: nd, b: nd, dx: float, dy: float) -> None:
    for i in range(p.shape[0]):
        for j in range(p.shape[1]):
            old[i, j] = p[i, j]
    for i in range(1, p.shape[0] - 1):
        for j in range(1, p.shape[1] - 1):
            beside = (old[i, j + 1] + old[i, j - 1]) * dy * dy
            above = (old[i + 1, j] + old[i - 1, j]) * dx * dx
            p[i, j] = (beside + above - dx * dx * dy * dy * b[i, j]) / (2.0 * (dx * dx + dy * dy))


@kernel
def walls_of_pressure(p: nd) -> None:
    n, m = p.shape[0], p.shape[1]
    for i in range(n):
        p[i, m - 1] = p[i, m - 2]
    for j in range(m):
        p[0, j] = p[1, j]
    for i in range(n):
        p[i, 0] = p[i, 1]
    for j in range(m):
        p[n - 1, j] = 0.0


@kernel
def accelerate(u: nd, v: nd, p: nd, u0: nd, v0: nd, dx: float, dy: float, dt: float) -> None:
    for i in range(u.shape[0]):
        for j in range(u.shape[1]):
            u0[i, j] = u[i, j]
            v0[i, j] = v[i, j]
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            along, across = dt / dx * u0[i, j], dt / dy * v0[i, j]
            ux = u0[i, j + 1] - 2.0 * u0[i, j] + u0[i, j - 1]
            uy = u0[i + 1, j] - 2.0 * u0[i, j] + u0[i - 1, j]
            vx = v0[i, j + 1] - 2.0 * v0[i, j] + v0[i, j - 1]
            vy = v0[i + 1, j] - 2.0 * v0[i, j] + v0[i - 1, j]
            u[i, j] = (
                u0[i, j] - along * (u0[i, j] - u0[i, j - 1]) - across * (u0[i, j] - u0[i - 1, j])
                - dt / (2.0 * dx) * (p[i, j + 1] - p[i, j - 1])
                + _NU * (dt / (dx * dx) * ux + dt / (dy * dy) * uy)
            )  # fmt: skip
            v[i, j] = (
                v0[i, j] - along * (v0[i, j] - v0[i, j - 1]) - across * (v0[i, j] - v0[i - 1, j])
                - dt / (2.0 * dy) * (p[i + 1, j] - p[i - 1, j])
                + _NU * (dt / (dx * dx) * vx + dt / (dy * dy) * vy)
            )  # fmt: skip


@kernel
def walls_of_cavity(u: nd, v: nd) -> None:
    n, m = u.shape[0], u.shape[1]
    for i in range(n):
        u[i, 0] = 0.0
        u[i, m - 1] = 0.0
        v[i, 0] = 0.0
        v[i, m - 1] = 0.0
    for j in range(m):
        u[0, j] = 0.0
        v[0, j] = 0.0
        u[n - 1, j] = 1.0
        v[n - 1, j] = 0.0


def cavity_flow(u: Any, v: Any, p: Any, steps: int, sweeps: int) -> None:
    b = ndarray(u.dtype, u.shape, name="b")
    old = ndarray(u.dtype, u.shape, name="old")
    u0 = ndarray(u.dtype, u.shape, name="u0")
    v0 = ndarray(u.dtype, u.shape, name="v0")
    dx, dy, dt = _spacing(u.shape)
    for _ in range(steps):
        divergence(u, v, b, dx, dy, dt)
        for _ in range(sweeps):
            relax(p, old, b, dx, dy)
            walls_of_pressure(p)
        accelerate(u, v, p, u0, v0, dx, dy, dt)
        walls_of_cavity(u, v)


def _np_slopes(x, dx, dy):
    return (x[1:-1, 2:] - x[1:-1, :-2]) / (2.0 * dx), (x[2:, 1:-1] - x[:-2, 1:-1]) / (2.0 * dy)


def _np_divergence(u, v, dx, dy, dt):
    (ux, uy), (vx, vy) = _np_slopes(u, dx, dy), _np_slopes(v, dx, dy)
    return (ux + vy) / dt - ux**2 - 2.0 * uy * vx - vy**2


def _np_relaxed(p, b, dx, dy):
    beside, above = p[1:-1, 2:] + p[1:-1, :-2], p[2:, 1:-1] + p[:-2, 1:-1]
    return (dy**2 * beside + dx**2 * above - dx**2 * dy**2 * b) / (2.0 * (dx**2 + dy**2))


def _np_moved(x, u, v, dx, dy, dt):
    """A component of the velocity after a step without pressure."""
    middle = x[1:-1, 1:-1]
    carried = dt / dx * u[1:-1, 1:-1] * (middle - x[1:-1, :-2])
    carried = carried + dt / dy * v[1:-1, 1:-1] * (middle - x[:-2, 1:-1])
    spread = dt / dx**2 * (x[1:-1, 2:] - 2.0 * middle + x[1:-1, :-2])
    spread = spread + dt / dy**2 * (x[2:, 1:-1] - 2.0 * middle + x[:-2, 1:-1])
    return middle - carried + _NU * spread


def _np_cavity_flow(u, v, p, steps, sweeps):
    dx, dy, dt = _spacing(u.shape)
    inside = np.s_[1:-1, 1:-1]
    for _ in range(steps):
        b = _np_divergence(u, v, dx, dy, dt)
        for _ in range(sweeps):
            p[inside] = _np_relaxed(p, b, dx, dy)
            p[:, -1] = p[:, -2]
            p[0] = p[1]
            p[:, 0] = p[:, 1]
            p[-1] = 0.0
        px, py = _np_slopes(p, dx, dy)
        new_u = _np_moved(u, u, v, dx, dy, dt) - dt * px
        new_v = _np_moved(v, u, v, dx, dy, dt) - dt * py
        u[inside], v[inside] = new_u, new_v
        for x in (u, v):
            x[0] = x[-1] = 0.0
            x[:, 0] = x[:, -1] = 0.0
        u[-1] = 1.0


@parallel
def _nb_divergence(u, v, b, dx, dy, dt, width):
    """On `width` columns from the second one on, which wrap around."""
    n, m = u.shape
    for i in prange(1, n - 1):
        for c in range(1, width + 1):
            j, left, right = c % m, (c - 1) % m, (c + 1) % m
            ux, uy = (
                (u[i, right] - u[i, left]) / (2.0 * dx),
                (u[i + 1, j] - u[i - 1, j]) / (2.0 * dy),
            )
            vx, vy = (
                (v[i, right] - v[i, left]) / (2.0 * dx),
                (v[i + 1, j] - v[i - 1, j]) / (2.0 * dy),
            )
            b[i, j] = (ux + vy) / dt - ux * ux - 2.0 * uy * vx - vy * vy


@parallel
def _nb_relax(p, old, b, dx, dy, width):
    n, m = p.shape
    scale = 2.0 * (dx * dx + dy * dy)
    for i in prange(n):
        for j in range(m):
            old[i, j] = p[i, j]
    for i in prange(1, n - 1):
        for c in range(1, width + 1):
            j, left, right = c % m, (c - 1) % m, (c + 1) % m
            total = (old[i, right] + old[i, left]) * dy * dy
            total += (old[i + 1, j] + old[i - 1, j]) * dx * dx
            p[i, j] = (total - dx * dx * dy * dy * b[i, j]) / scale


@parallel
def _nb_accelerate(u, v, p, u0, v0, dx, dy, dt, force, width):
    n, m = u.shape
    for i in prange(n):
        for j in range(m):
            u0[i, j], v0[i, j] = u[i, j], v[i, j]
    for i in prange(1, n - 1):
        for c in range(1, width + 1):
            j, left, right = c % m, (c - 1) % m, (c + 1) % m
            along, across = dt / dx * u0[i, j], dt / dy * v0[i, j]
            x, y = u0[i, j], v0[i, j]
            ux, uy = u0[i, right] - 2.0 * x + u0[i, left], u0[i + 1, j] - 2.0 * x + u0[i - 1, j]
            vx, vy = v0[i, right] - 2.0 * y + v0[i, left], v0[i + 1, j] - 2.0 * y + v0[i - 1, j]
            x -= along * (x - u0[i, left]) + across * (x - u0[i - 1, j])
            y -= along * (y - v0[i, left]) + across * (y - v0[i - 1, j])
            x += _NU * dt * (ux / (dx * dx) + uy / (dy * dy)) + force * dt
            y += _NU * dt * (vx / (dx * dx) + vy / (dy * dy))
            u[i, j] = x - dt / (2.0 * dx) * (p[i, right] - p[i, left])
            v[i, j] = y - dt / (2.0 * dy) * (p[i + 1, j] - p[i - 1, j])


def _nb_cavity_flow(u, v, p, steps, sweeps):
    b, old, u0, v0 = (np.zeros_like(u) for _ in range(4))
    dx, dy, dt = _spacing(u.shape)
    width = u.shape[1] - 2
    for _ in range(steps):
        _nb_divergence(u, v, b, dx, dy, dt, width)
        for _ in range(sweeps):
            _nb_relax(p, old, b, dx, dy, width)
            p[:, -1] = p[:, -2]
            p[0] = p[1]
            p[:, 0] = p[:, 1]
            p[-1] = 0.0
        _nb_accelerate(u, v, p, u0, v0, dx, dy, dt, 0.0, width)
        for x in (u, v):
            x[0] = x[-1] = 0.0
            x[:, 0] = x[:, -1] = 0.0
        u[-1] = 1.0


def _cavity_flow(rng, n, steps, sweeps):
    return tuple(np.zeros((n, n)) for _ in range(3))


# --- a channel ------------------------------------------------------------------------------------


@kernel
def flow_until_steady(
    u: nd,
    v: nd,
    p: nd,
    b: nd,
    old: nd,
    u0: nd,
    v0: nd,
    dx: float,
    dy: float,
    dt: float,
    sweeps: int,
) -> None:
    n, m = u.shape[0], u.shape[1]
    change = 1.0
    while change > _STEADY:
        for i in range(1, n - 1):
            for j in range(m):
                left, right = (j - 1) % m, (j + 1) % m
                ux = (u[i, right] - u[i, left]) / (2.0 * dx)
                uy = (u[i + 1, j] - u[i - 1, j]) / (2.0 * dy)
                vx = (v[i, right] - v[i, left]) / (2.0 * dx)
                vy = (v[i + 1, j] - v[i - 1, j]) / (2.0 * dy)
                b[i, j] = (ux + vy) / dt - ux * ux - 2.0 * uy * vx - vy * vy
        for _ in range(sweeps):
            for i in range(n):
                for j in range(m):
                    old[i, j] = p[i, j]
            for i in range(1, n - 1):
                for j in range(m):
                    beside = (old[i, (j + 1) % m] + old[i, (j - 1) % m]) * dy * dy
                    above = (old[i + 1, j] + old[i - 1, j]) * dx * dx
                    total = beside + above - dx * dx * dy * dy * b[i, j]
                    p[i, j] = total / (2.0 * (dx * dx + dy * dy))
            for j in range(m):
                p[n - 1, j] = p[n - 2, j]
                p[0, j] = p[1, j]
        before = 0.0
        for i in range(n):
            for j in range(m):
                u0[i, j] = u[i, j]
                v0[i, j] = v[i, j]
                before += u[i, j]
        after = 0.0
        for i in range(1, n - 1):
            for j in range(m):
                left, right = (j - 1) % m, (j + 1) % m
                along, across = dt / dx * u0[i, j], dt / dy * v0[i, j]
                ux = u0[i, right] - 2.0 * u0[i, j] + u0[i, left]
                uy = u0[i + 1, j] - 2.0 * u0[i, j] + u0[i - 1, j]
                vx = v0[i, right] - 2.0 * v0[i, j] + v0[i, left]
                vy = v0[i + 1, j] - 2.0 * v0[i, j] + v0[i - 1, j]
                u[i, j] = (
                    u0[i, j] - along * (u0[i, j] - u0[i, left]) - across * (u0[i, j] - u0[i - 1, j])
                    - dt / (2.0 * dx) * (p[i, right] - p[i, left]) + _FORCE * dt
                    + _NU * (dt / (dx * dx) * ux + dt / (dy * dy) * uy)
                )  # fmt: skip
                v[i, j] = (
                    v0[i, j] - along * (v0[i, j] - v0[i, left]) - across * (v0[i, j] - v0[i - 1, j])
                    - dt / (2.0 * dy) * (p[i + 1, j] - p[i - 1, j])
                    + _NU * (dt / (dx * dx) * vx + dt / (dy * dy) * vy)
                )  # fmt: skip
                after += u[i, j]
        change = (after - before) / after


def channel_flow(u: Any, v: Any, p: Any, sweeps: int) -> None:
    b = ndarray(u.dtype, u.shape, name="b")
    old = ndarray(u.dtype, u.shape, name="old")
    u0 = ndarray(u.dtype, u.shape, name="u0")
    v0 = ndarray(u.dtype, u.shape, name="v0")
    dx, dy, dt = _spacing(u.shape)
    flow_until_steady(u, v, p, b, old, u0, v0, dx, dy, dt, sweeps)


def _np_wrapped(x):
    """The array with its last column before the first one, and its first one behind the last."""
    return np.concatenate([x[:, -1:], x, x[:, :1]], axis=1)


def _np_channel_flow(u, v, p, sweeps):
    dx, dy, dt = _spacing(u.shape)
    change = 1.0
    while change > _STEADY:
        wide_u, wide_v = _np_wrapped(u), _np_wrapped(v)
        b = _np_divergence(wide_u, wide_v, dx, dy, dt)
        for _ in range(sweeps):
            p[1:-1] = _np_relaxed(_np_wrapped(p), b, dx, dy)
            p[-1], p[0] = p[-2], p[1]
        px, py = _np_slopes(_np_wrapped(p), dx, dy)
        before = u.sum()
        u[1:-1] = _np_moved(wide_u, wide_u, wide_v, dx, dy, dt) - dt * px + _FORCE * dt
        v[1:-1] = _np_moved(wide_v, wide_u, wide_v, dx, dy, dt) - dt * py
        change = (u.sum() - before) / u.sum()


def _nb_channel_flow(u, v, p, sweeps):
    b, old, u0, v0 = (np.zeros_like(u) for _ in range(4))
    dx, dy, dt = _spacing(u.shape)
    width, change = u.shape[1], 1.0
    while change > _STEADY:
        _nb_divergence(u, v, b, dx, dy, dt, width)
        for _ in range(sweeps):
            _nb_relax(p, old, b, dx, dy, width)
            p[-1], p[0] = p[-2], p[1]
        _nb_accelerate(u, v, p, u0, v0, dx, dy, dt, _FORCE, width)
        change = (u.sum() - u0.sum()) / u.sum()


def _channel_flow(rng, n, sweeps):
    # Velocities across the channel, which die away: without them they stay 0.
    return np.zeros((n, n)), 0.01 * rng.standard_normal((n, n)), np.ones((n, n))


PROGRAMS = (
    Ported(
        cavity_flow,
        _np_cavity_flow,
        _nb_cavity_flow,
        _cavity_flow,
        (0, 1, 2),
        {"n": 121, "steps": 50, "sweeps": 10},
        {"n": 7, "steps": 3, "sweeps": 2},
        ("steps", "sweeps"),
    ),
    Ported(
        channel_flow,
        _np_channel_flow,
        _nb_channel_flow,
        _channel_flow,
        (0, 1, 2),
        {"n": 61, "sweeps": 5},
        {"n": 5, "sweeps": 2},
        ("sweeps",),
    ),
)
