"""Bodies, self-energies, a Fourier transform and two Mandelbrot sets: NPBench's programs of physics and of complex numbers."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,untyped-decorator,valid-type"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from ...kernels.frontend.functions import cos, sin, sqrt
from ...kernels.frontend.intrinsics import template
from ...kernels.frontend.kernel import kernel, types
from ...kernels.frontend.recorder import ndarray
from .ported import Ported, parallel, serial

nd: Any = types.ndarray()
C128 = np.complex128


# --- bodies that attract one another --------------------------------------------------------------

_SOFTENING, _STEP = 0.1, 0.05


@kernel
def to_rest(mass: nd, vel: nd) -> None:
    """Velocities beside that of the centre of mass."""
    for d in range(vel.shape[1]):
        momentum = 0.0
        total = 0.0
        for i in range(mass.shape[0]):
            momentum += mass[i] * vel[i, d]
            total += mass[i]
        for i in range(mass.shape[0]):
            vel[i, d] -= momentum / total


@kernel
def attract(mass: nd, pos: nd, acc: nd) -> None:
    for i in range(pos.shape[0]):
        ax = 0.0
        ay = 0.0
        az = 0.0
        for j in range(pos.shape[0]):
            dx = pos[j, 0] - pos[i, 0]
            dy = pos[j, 1] - pos[i, 1]
            dz = pos[j, 2] - pos[i, 2]
            square = dx * dx + dy * dy + dz * dz + _SOFTENING * _SOFTENING
            weight = mass[j] / (square * sqrt(square))
            ax += dx * weight
            ay += dy * weight
            az += dz * weight
        acc[i, 0] = ax
        acc[i, 1] = ay
        acc[i, 2] = az


@kernel
def kick(vel: nd, acc: nd) -> None:
    for i in range(vel.shape[0]):
        for d in range(vel.shape[1]):
            vel[i, d] += 0.5 * _STEP * acc[i, d]


@kernel
def drift(pos: nd, vel: nd) -> None:
    for i in range(pos.shape[0]):
        for d in range(pos.shape[1]):
            pos[i, d] += _STEP * vel[i, d]


@kernel
def energies(mass: nd, pos: nd, vel: nd, kinetic: nd, potential: nd, t: int) -> None:
    moving = 0.0
    for i in range(mass.shape[0]):
        for d in range(vel.shape[1]):
            moving += mass[i] * vel[i, d] * vel[i, d]
    kinetic[t] = 0.5 * moving
    bound = 0.0
    for i in range(mass.shape[0]):
        for j in range(i + 1, mass.shape[0]):
            dx = pos[j, 0] - pos[i, 0]
            dy = pos[j, 1] - pos[i, 1]
            dz = pos[j, 2] - pos[i, 2]
            bound += mass[i] * mass[j] / sqrt(dx * dx + dy * dy + dz * dz)
    potential[t] = -bound


def nbody(mass: Any, pos: Any, vel: Any, kinetic: Any, potential: Any) -> None:
    acc = ndarray(pos.dtype, pos.shape, name="acc")
    to_rest(mass, vel)
    attract(mass, pos, acc)
    energies(mass, pos, vel, kinetic, potential, 0)
    for t in range(1, kinetic.shape[0]):
        kick(vel, acc)
        drift(pos, vel)
        attract(mass, pos, acc)
        kick(vel, acc)
        energies(mass, pos, vel, kinetic, potential, t)


def _np_attract(mass, pos):
    apart = pos[None, :, :] - pos[:, None, :]
    square = (apart**2).sum(axis=2) + _SOFTENING**2
    return ((mass / square**1.5)[:, :, None] * apart).sum(axis=1)


def _np_energies(mass, pos, vel):
    i, j = np.triu_indices(len(mass), 1)
    distance = np.sqrt(((pos[i] - pos[j]) ** 2).sum(axis=1))
    return 0.5 * (mass[:, None] * vel**2).sum(), -(mass[i] * mass[j] / distance).sum()


def _np_nbody(mass, pos, vel, kinetic, potential):
    vel -= (mass[:, None] * vel).sum(axis=0) / mass.sum()
    acc = _np_attract(mass, pos)
    kinetic[0], potential[0] = _np_energies(mass, pos, vel)
    for t in range(1, len(kinetic)):
        vel += 0.5 * _STEP * acc
        pos += _STEP * vel
        acc = _np_attract(mass, pos)
        vel += 0.5 * _STEP * acc
        kinetic[t], potential[t] = _np_energies(mass, pos, vel)


@serial
def _nb_attract(mass, pos, acc):
    for i in range(pos.shape[0]):
        ax, ay, az = 0.0, 0.0, 0.0
        for j in range(pos.shape[0]):
            dx, dy, dz = pos[j, 0] - pos[i, 0], pos[j, 1] - pos[i, 1], pos[j, 2] - pos[i, 2]
            square = dx * dx + dy * dy + dz * dz + _SOFTENING * _SOFTENING
            weight = mass[j] / (square * np.sqrt(square))
            ax, ay, az = ax + dx * weight, ay + dy * weight, az + dz * weight
        acc[i, 0], acc[i, 1], acc[i, 2] = ax, ay, az


@serial
def _nb_energies(mass, pos, vel):
    moving, bound = 0.0, 0.0
    for i in range(mass.shape[0]):
        for d in range(3):
            moving += mass[i] * vel[i, d] * vel[i, d]
        for j in range(i + 1, mass.shape[0]):
            dx, dy, dz = pos[j, 0] - pos[i, 0], pos[j, 1] - pos[i, 1], pos[j, 2] - pos[i, 2]
            bound += mass[i] * mass[j] / np.sqrt(dx * dx + dy * dy + dz * dz)
    return 0.5 * moving, -bound


@serial
def _nb_nbody(mass, pos, vel, kinetic, potential):
    for d in range(3):
        vel[:, d] -= (mass * vel[:, d]).sum() / mass.sum()
    acc = np.empty_like(pos)
    _nb_attract(mass, pos, acc)
    kinetic[0], potential[0] = _nb_energies(mass, pos, vel)
    for t in range(1, len(kinetic)):
        vel += 0.5 * _STEP * acc
        pos += _STEP * vel
        _nb_attract(mass, pos, acc)
        vel += 0.5 * _STEP * acc
        kinetic[t], potential[t] = _nb_energies(mass, pos, vel)


def _nbody(rng, n, steps):
    places = rng.random((n, 3)), rng.random((n, 3))
    return np.full(n, 20.0 / n), *places, np.zeros(steps + 1), np.zeros(steps + 1)


# --- self-energies by scattering ------------------------------------------------------------------


@kernel
def scattered(neighbour: nd, dh: nd, g: nd, gh: nd) -> None:
    """Green's function of each neighbour times the derivative of the Hamiltonian, by direction."""
    for k in range(g.shape[0]):
        for e in range(g.shape[1]):
            for a in range(neighbour.shape[0]):
                for b in range(neighbour.shape[1]):
                    for i in range(dh.shape[2]):
                        for m in range(g.shape[3]):
                            for n in range(g.shape[3]):
                                total = g[k, e, neighbour[a, b], m, 0] * dh[a, b, i, 0, n]
                                for o in range(1, g.shape[3]):
                                    total += g[k, e, neighbour[a, b], m, o] * dh[a, b, i, o, n]
                                gh[k, e, a, b, i, m, n] = total


@kernel
def self_energies(dh: nd, d: nd, gh: nd, sigma: nd) -> None:
    """Sums over momenta q, frequencies w no larger than the energy, neighbours, and both directions."""
    for k in range(sigma.shape[0]):
        for e in range(sigma.shape[1]):
            for a in range(sigma.shape[2]):
                for m in range(sigma.shape[3]):
                    for n in range(sigma.shape[4]):
                        for q in range(d.shape[0]):
                            for w in range(min(d.shape[1], e + 1)):
                                for b in range(d.shape[3]):
                                    for i in range(d.shape[4]):
                                        for j in range(d.shape[5]):
                                            for o in range(sigma.shape[3]):
                                                weight = d[q, w, a, b, i, j] * dh[a, b, j, o, n]
                                                sigma[k, e, a, m, n] += (
                                                    gh[k, e - w, a, b, i, m, o] * weight
                                                )


def scattering_self_energies(neighbour: Any, dh: Any, g: Any, d: Any, sigma: Any) -> None:
    shape = (*g.shape[:2], *dh.shape[:3], *g.shape[3:])
    gh = ndarray(g.dtype, shape, name="gh")
    scattered(neighbour, dh, g, gh)
    self_energies(dh, d, gh, sigma)


def _np_scattering_self_energies(neighbour, dh, g, d, sigma):
    gh = np.einsum("keabmo,abion->keabimn", g[:, :, neighbour], dh)
    dhd = np.einsum("abjon,qwabij->wabion", dh, d)
    for w in range(d.shape[1]):
        sigma[:, w:] += np.einsum("keabimo,abion->keamn", gh[:, : g.shape[1] - w], dhd[w])


@parallel
def _nb_scattering_self_energies(neighbour, dh, g, d, sigma):
    n_k, n_e, n_a = sigma.shape[:3]
    for point in prange(n_k * n_e * n_a):
        k, e, a = point // (n_e * n_a), point // n_a % n_e, point % n_a
        for q in range(d.shape[0]):
            for w in range(min(d.shape[1], e + 1)):
                for b in range(d.shape[3]):
                    here = g[k, e - w, neighbour[a, b]]
                    for i in range(d.shape[4]):
                        left = here @ dh[a, b, i]
                        for j in range(d.shape[5]):
                            sigma[k, e, a] += left @ (dh[a, b, j] * d[q, w, a, b, i, j])


def _scattering_self_energies(rng, n_k, n_e, n_q, n_w, n_d, n_a, n_b, n_o):
    def drawn(*shape):
        return rng.random(shape) + 1j * rng.random(shape)

    around = np.arange(n_a)[:, None] + np.arange(n_b) - n_b // 2
    return (
        (around % n_a).astype(np.int32),
        drawn(n_a, n_b, n_d, n_o, n_o),
        drawn(n_k, n_e, n_a, n_o, n_o),
        drawn(n_q, n_w, n_a, n_b, n_d, n_d),
        np.zeros((n_k, n_e, n_a, n_o, n_o), C128),
    )


# --- a Fourier transform --------------------------------------------------------------------------


@kernel
def roots_of_one(w: nd) -> None:
    """The first half of the roots of 1 whose number is twice the length of w."""
    for k in range(w.shape[0]):
        angle = -3.141592653589793 * k / w.shape[0]
        w[k] = complex(cos(angle), sin(angle))


@kernel
def butterflies(x: nd, y: nd, w: nd, rows: template(), tail: template()) -> None:
    """A step of Stockham's transform of radix 2: x is rows by 2 by tail, y is 2 by rows by tail."""
    for p in range(rows):
        for q in range(tail):
            even = x[2 * p * tail + q]
            odd = x[(2 * p + 1) * tail + q] * w[p * tail]
            y[p * tail + q] = even + odd
            y[(rows + p) * tail + q] = even - odd


def stockham_fft(x: Any, y: Any) -> None:
    n = x.shape[0]
    one, two = ndarray(x.dtype, n, name="one"), ndarray(x.dtype, n, name="two")
    w = ndarray(x.dtype, n // 2, name="w")
    roots_of_one(w)
    rows, given = 1, x
    while rows < n:
        made = y if 2 * rows == n else (two if given is one else one)
        butterflies(given, made, w, rows, n // (2 * rows))
        rows, given = 2 * rows, made


def _np_stockham_fft(x, y):
    n = len(x)
    y[:] = x
    rows = 1
    while rows < n:
        parts = y.reshape(rows, 2, -1)
        turned = parts[:, 1] * np.exp(-1j * np.pi / rows * np.arange(rows))[:, None]
        y[:] = np.concatenate([(parts[:, 0] + turned).ravel(), (parts[:, 0] - turned).ravel()])
        rows *= 2


@parallel
def _nb_butterflies(x, y, w, rows, tail):
    for k in prange(rows * tail):
        p, q = k // tail, k % tail
        even, odd = x[2 * p * tail + q], x[(2 * p + 1) * tail + q] * w[p * tail]
        y[k] = even + odd
        y[rows * tail + k] = even - odd


def _nb_stockham_fft(x, y):
    n, rows, given = len(x), 1, x.copy()
    made = np.empty_like(given)
    w = np.exp(-2j * np.pi / n * np.arange(n // 2)).astype(x.dtype)
    while rows < n:
        _nb_butterflies(given, made, w, rows, n // (2 * rows))
        rows, given, made = 2 * rows, made, given
    y[:] = given


def _stockham_fft(rng, k):
    n = 1 << k
    return rng.random(n) + 1j * rng.random(n), np.zeros(n, C128)


# --- Mandelbrot sets ------------------------------------------------------------------------------


@kernel
def iterate_within(x: nd, y: nd, z: nd, counts: nd, steps: int) -> None:
    """The value of each point once it leaves the circle of radius 2, and the last step in which it was inside."""
    for i in range(y.shape[0]):
        for j in range(x.shape[0]):
            re = 0.0
            im = 0.0
            count = 0
            for n in range(steps):
                if re * re + im * im < 4.0:
                    count = n
                    old = re
                    re = re * re - im * im + x[j]
                    im = 2.0 * old * im + y[i]
            z[i, j, 0] = re
            z[i, j, 1] = im
            counts[i, j] = 0 if count == steps - 1 else count


def mandelbrot1(x: Any, y: Any, z: Any, counts: Any, steps: int) -> None:
    iterate_within(x, y, z, counts, steps)


def _np_mandelbrot1(x, y, z, counts, steps):
    c = x + 1j * y[:, None]
    values = np.zeros_like(c)
    counts[:] = 0
    for n in range(steps):
        inside = abs(values) < 2.0
        counts[inside] = n
        values[inside] = values[inside] ** 2 + c[inside]
    counts[counts == steps - 1] = 0
    z[:, :, 0], z[:, :, 1] = values.real, values.imag


@parallel
def _nb_mandelbrot1(x, y, z, counts, steps):
    for i in prange(y.shape[0]):
        for j in range(x.shape[0]):
            re, im, n = 0.0, 0.0, 0
            while n < steps and re * re + im * im < 4.0:
                re, im = re * re - im * im + x[j], 2.0 * re * im + y[i]
                n += 1
            z[i, j, 0], z[i, j, 1] = re, im
            counts[i, j] = 0 if n == steps else n - 1


def _mandelbrot1(rng, nx, ny, steps):
    x, y = np.linspace(-1.75, 0.25, nx), np.linspace(-1.0, 1.0, ny)
    return x, y, np.zeros((ny, nx, 2)), np.zeros((ny, nx), np.int64)


@kernel
def iterate_until_outside(x: nd, y: nd, z: nd, counts: nd, steps: int) -> None:
    """The value with which each point leaves the circle of radius 2, and its step; 0 of points that stay."""
    for i in range(y.shape[0]):
        for j in range(x.shape[0]):
            z[i, j, 0] = 0.0
            z[i, j, 1] = 0.0
            counts[i, j] = 0
            re = 0.0
            im = 0.0
            for n in range(steps):
                old = re
                re = re * re - im * im + x[j]
                im = 2.0 * old * im + y[i]
                if re * re + im * im > 4.0:
                    z[i, j, 0] = re
                    z[i, j, 1] = im
                    counts[i, j] = n + 1
                    break


def mandelbrot2(x: Any, y: Any, z: Any, counts: Any, steps: int) -> None:
    iterate_until_outside(x, y, z, counts, steps)


def _np_mandelbrot2(x, y, z, counts, steps):
    shape, at = counts.shape, np.arange(counts.size)
    c = (x + 1j * y[:, None]).ravel()
    found, n_found = np.zeros_like(c), np.zeros(counts.size, counts.dtype)
    values = np.zeros_like(c)
    for n in range(steps):
        values = values * values + c
        outside = abs(values) > 2.0
        found[at[outside]], n_found[at[outside]] = values[outside], n + 1
        values, c, at = values[~outside], c[~outside], at[~outside]
    z[:, :, 0], z[:, :, 1] = found.real.reshape(shape), found.imag.reshape(shape)
    counts[:] = n_found.reshape(shape)


@parallel
def _nb_mandelbrot2(x, y, z, counts, steps):
    for i in prange(y.shape[0]):
        for j in range(x.shape[0]):
            z[i, j, 0], z[i, j, 1], counts[i, j] = 0.0, 0.0, 0
            re, im = 0.0, 0.0
            for n in range(steps):
                re, im = re * re - im * im + x[j], 2.0 * re * im + y[i]
                if re * re + im * im > 4.0:
                    z[i, j, 0], z[i, j, 1], counts[i, j] = re, im, n + 1
                    break


def _mandelbrot2(rng, nx, ny, steps):
    x, y = np.linspace(-2.0, 0.5, nx), np.linspace(-1.25, 1.25, ny)
    return x, y, np.zeros((ny, nx, 2)), np.zeros((ny, nx), np.int64)


_EDGE = 1e-3  # of points so near the edge of a set that rounding counts a step more
_SET = {"nx": 9, "ny": 8, "steps": 12}
PROGRAMS = (
    Ported(
        nbody,
        _np_nbody,
        _nb_nbody,
        _nbody,
        (1, 2, 3, 4),
        {"n": 25, "steps": 40},
        {"n": 5, "steps": 3},
    ),
    Ported(
        scattering_self_energies,
        _np_scattering_self_energies,
        _nb_scattering_self_energies,
        _scattering_self_energies,
        (4,),
        {"n_k": 2, "n_e": 4, "n_q": 2, "n_w": 2, "n_d": 2, "n_a": 6, "n_b": 2, "n_o": 3},
        {"n_k": 1, "n_e": 3, "n_q": 2, "n_w": 2, "n_d": 1, "n_a": 3, "n_b": 2, "n_o": 2},
    ),
    Ported(
        stockham_fft, _np_stockham_fft, _nb_stockham_fft, _stockham_fft, (1,), {"k": 15}, {"k": 4}
    ),
    Ported(
        mandelbrot1,
        _np_mandelbrot1,
        _nb_mandelbrot1,
        _mandelbrot1,
        (2, 3),
        {"nx": 250, "ny": 250, "steps": 150},
        _SET,
        ("steps",),
        loose=_EDGE,
    ),
    Ported(
        mandelbrot2,
        _np_mandelbrot2,
        _nb_mandelbrot2,
        _mandelbrot2,
        (2, 3),
        {"nx": 500, "ny": 500, "steps": 80},
        _SET,
        ("steps",),
        loose=_EDGE,
    ),
)
