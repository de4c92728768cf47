"""Programs of Hu et al., AsyncTaichi (2020), written anew: its ten micro-benchmarks and its applications but AutoDiff.

Each text defines `step`, a period; `again`, what makes a sample like the one before; and `result`, one number of what a few periods
leave. `shrink` makes all of them smaller. AutoDiff has a page of its own (experiments.autodiff).
"""

from __future__ import annotations

from collections.abc import Mapping

from .sparse_sequences import PROGRAMS as SPARSE

_CHAIN_COPY = """
n = (1 << 21) // shrink
x, y, z = (ti.field(ti.i32, shape=n) for _ in range(3))

@ti.kernel
def add(target: ti.template(), source: ti.template(), by: ti.template()):
    for i in target:
        target[i] = source[i] + by

def step():
    add(y, x, 1)
    add(z, y, 4)

def again():
    pass

def result():
    x.fill(3)
    step()
    return float(z.to_numpy().astype(float).sum() + y.to_numpy().astype(float).sum())
"""
_INCREMENTS = """
n = (1 << 21) // shrink
x = ti.field(ti.i32, shape=n)

@ti.kernel
def increment():
    for i in x:
        x[i] = x[i] + 1

def step():
    for _ in range(10):
        increment()

def again():
    pass

def result():
    x.fill(3)
    step()
    return float(x.to_numpy().astype(float).sum())
"""
_FILL_ARRAY = """
n = (1 << 21) // shrink
a = ti.field(ti.f32, shape=n)

@ti.kernel
def fill():
    for i in a:
        a[i] = 1.0

def step():
    for _ in range(10):
        fill()

def again():
    pass

def result():
    a.fill(0.0)
    step()
    return float(a.to_numpy().astype(float).sum())
"""
_SIMPLE_ADVECTION = """
n, dt = 256 // shrink, 0.01
h = 1.0 / n
dye = ti.Vector.field(3, ti.f32, shape=(n, n))
moved = ti.Vector.field(3, ti.f32, shape=(n, n))

@ti.func
def velocity(p):
    return ti.Vector([0.5 - p[1], p[0] - 0.5])

@ti.func
def origin(i, j):
    p = (ti.Vector([i, j]) + 0.5) * h
    a = velocity(p)
    b = velocity(p - 0.5 * dt * a)
    c = velocity(p - 0.75 * dt * b)
    return p - dt * (2.0 / 9.0 * a + 1.0 / 3.0 * b + 4.0 / 9.0 * c)

@ti.func
def sample(p, k):
    s = p * n - 0.5
    low = ti.cast(ti.floor(s), ti.i32)
    f = s - low
    i0, j0 = max(0, min(n - 1, low[0])), max(0, min(n - 1, low[1]))
    i1, j1 = max(0, min(n - 1, low[0] + 1)), max(0, min(n - 1, low[1] + 1))
    left = dye[i0, j0][k] * (1.0 - f[1]) + dye[i0, j1][k] * f[1]
    right = dye[i1, j0][k] * (1.0 - f[1]) + dye[i1, j1][k] * f[1]
    return left * (1.0 - f[0]) + right * f[0]

@ti.kernel
def initialise():
    for i, j in dye:
        dye[i, j] = [ti.sin(9.0 * h * i), ti.cos(7.0 * h * j), ti.sin(5.0 * h * (i + j))]

@ti.kernel
def advect():
    for i, j in moved:
        moved[i, j][0] = sample(origin(i, j), 0)
    for i, j in moved:
        moved[i, j][1] = sample(origin(i, j), 1)
    for i, j in moved:
        moved[i, j][2] = sample(origin(i, j), 2)
    for i, j in dye:
        dye[i, j] = moved[i, j]

initialise()

def step():
    for _ in range(10):
        advect()

def again():
    pass

def result():
    initialise()
    step()
    return float(abs(dye.to_numpy().astype(float)).sum())
"""
_MPM_SPLITTED = """
n_grid, n_particles = 384 // shrink, 81_000 // shrink**2
dx, dt = 1.0 / n_grid, 2e-5
volume = (0.5 * dx) ** 2
mass = volume
mu_0, lambda_0 = 400.0, 250.0
x = ti.Vector.field(2, ti.f32, shape=n_particles)
v = ti.Vector.field(2, ti.f32, shape=n_particles)
C = ti.Matrix.field(2, 2, ti.f32, shape=n_particles)
F = ti.Matrix.field(2, 2, ti.f32, shape=n_particles)
grid_v = ti.Vector.field(2, ti.f32, shape=(n_grid, n_grid))
grid_m = ti.field(ti.f32, shape=(n_grid, n_grid))

@ti.kernel
def initialise():
    for p in x:
        row, column = p // 270, p % 270
        x[p] = [0.3 + 0.4 * column / 270, 0.2 + 0.4 * row / 300]
        v[p] = [0.0, -1.0]
        C[p] = ti.Matrix.zero(ti.f32, 2, 2)
        F[p] = ti.Matrix.identity(ti.f32, 2)

@ti.kernel
def substep():
    for i, j in grid_m:
        grid_v[i, j] = [0.0, 0.0]
        grid_m[i, j] = 0.0
    for p in x:
        F[p] = (ti.Matrix.identity(ti.f32, 2) + dt * C[p]) @ F[p]
    for p in x:
        base = ti.cast(x[p] * n_grid - 0.5, ti.i32)
        f = x[p] * n_grid - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        U, sig, V = ti.svd(F[p])
        a, b = min(max(sig[0, 0], 0.975), 1.0045), min(max(sig[1, 1], 0.975), 1.0045)
        J = a * b
        F[p] = U @ ti.Matrix([[a, 0.0], [0.0, b]]) @ V.transpose()
        stress = 2.0 * mu_0 * (F[p] - U @ V.transpose()) @ F[p].transpose()
        stress += ti.Matrix.identity(ti.f32, 2) * lambda_0 * J * (J - 1.0)
        affine = (-dt * volume * 4.0 * n_grid * n_grid) * stress + mass * C[p]
        for i, j in ti.static(ti.ndrange(3, 3)):
            at = ti.Vector([i, j])
            d = (ti.cast(at, ti.f32) - f) * dx
            weight = w[i][0] * w[j][1]
            grid_v[base + at] += weight * (mass * v[p] + affine @ d)
            grid_m[base + at] += weight * mass
    for i, j in grid_m:
        if grid_m[i, j] > 0.0:
            grid_v[i, j] = grid_v[i, j] / grid_m[i, j]
            grid_v[i, j][1] -= dt * 50.0
    for i, j in grid_m:
        if i < 3 and grid_v[i, j][0] < 0.0:
            grid_v[i, j][0] = 0.0
    for i, j in grid_m:
        if i > n_grid - 3 and grid_v[i, j][0] > 0.0:
            grid_v[i, j][0] = 0.0
    for i, j in grid_m:
        if j < 3 and grid_v[i, j][1] < 0.0:
            grid_v[i, j][1] = 0.0
    for i, j in grid_m:
        if j > n_grid - 3 and grid_v[i, j][1] > 0.0:
            grid_v[i, j][1] = 0.0
    for p in x:
        base = ti.cast(x[p] * n_grid - 0.5, ti.i32)
        f = x[p] * n_grid - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        new_v, new_c = ti.Vector.zero(ti.f32, 2), ti.Matrix.zero(ti.f32, 2, 2)
        for i, j in ti.static(ti.ndrange(3, 3)):
            at = ti.Vector([i, j])
            weight, u = w[i][0] * w[j][1], grid_v[base + at]
            new_v += weight * u
            new_c += 4.0 * n_grid * weight * u.outer_product(ti.cast(at, ti.f32) - f)
        v[p], C[p] = new_v, new_c
    for p in x:
        x[p] += dt * v[p]

initialise()

def step():
    for _ in range(59):
        substep()

def again():
    initialise()

def result():
    initialise()
    step()
    return float(x.to_numpy().astype(float).sum())
"""
_DERIVATIVES = """
n = (1 << 21) // shrink
a = ti.field(ti.f32, shape=n, needs_grad=True)
b = ti.field(ti.f32, shape=n)
loss = ti.field(ti.f32, shape=(), needs_grad=True)

@ti.kernel
def initialise():
    for i in a:
        a[i] = 0.25 * (i % 4)  # whose sum is exact in any order
        b[i] = 0.0

@ti.kernel
def total():
    for i in a:
        loss[None] += a[i]

@ti.kernel
def follow():
    for i in a:
        b[i] += a.grad[i]

initialise()

def step():
    for _ in range(10):
        with ti.ad.Tape(loss):
            total()
        follow()

def again():
    pass

def result():
    initialise()
    step()
    return float(b.to_numpy().astype(float).sum() + loss[None])
"""
_MACCORMACK = """
n, leaf, dt = 128 // shrink, 8, 0.03
h = 1.0 / n
block = ti.root.pointer(ti.ijk, n // leaf)
cell = block.dense(ti.ijk, leaf)
v = [ti.field(ti.f32) for _ in range(3)]
dye = [[ti.field(ti.f32) for _ in range(3)] for _ in range(3)]  # before, after, back; by channel
cell.place(*v, *dye[0], *dye[1], *dye[2])

@ti.kernel
def initialise():
    for i, j, k in ti.ndrange(n, n, n):
        x, y, z = (i + 0.5) * h - 0.5, (j + 0.5) * h - 0.5, (k + 0.5) * h - 0.5
        d = ti.sqrt(x * x + y * y)
        if d > 0.32 and d < 0.45 and z > -0.45 and z < 0.45:
            v[0][i, j, k], v[1][i, j, k], v[2][i, j, k] = -y, x, 0.0
            dye[0][0][i, j, k] = 0.5 * ti.sin(x) + 0.5
            dye[0][1][i, j, k] = 0.5 * ti.sin(y) + 0.5
            dye[0][2][i, j, k] = 0.5 * ti.sin(x * y) + 0.5

@ti.func
def inside(i):
    return max(0, min(n - 1, i))

@ti.func
def mix(a, b, f):
    return a + f * (b - a)

@ti.func
def sample(q: ti.template(), x, y, z):
    sx, sy, sz = x * n - 0.5, y * n - 0.5, z * n - 0.5
    ix, iy, iz = ti.cast(ti.floor(sx), ti.i32), ti.cast(ti.floor(sy), ti.i32), ti.cast(ti.floor(sz), ti.i32)
    fx, fy, fz = sx - ix, sy - iy, sz - iz
    x0, x1, y0, y1, z0, z1 = inside(ix), inside(ix + 1), inside(iy), inside(iy + 1), inside(iz), inside(iz + 1)
    low = mix(mix(q[x0, y0, z0], q[x1, y0, z0], fx), mix(q[x0, y1, z0], q[x1, y1, z0], fx), fy)
    high = mix(mix(q[x0, y0, z1], q[x1, y0, z1], fx), mix(q[x0, y1, z1], q[x1, y1, z1], fx), fy)
    return mix(low, high, fz)

@ti.func
def extremes(q: ti.template(), x, y, z):
    ix, iy = ti.cast(ti.floor(x * n - 0.5), ti.i32), ti.cast(ti.floor(y * n - 0.5), ti.i32)
    iz = ti.cast(ti.floor(z * n - 0.5), ti.i32)
    x0, x1, y0, y1, z0, z1 = inside(ix), inside(ix + 1), inside(iy), inside(iy + 1), inside(iz), inside(iz + 1)
    a, b, c, d = q[x0, y0, z0], q[x1, y0, z0], q[x0, y1, z0], q[x1, y1, z0]
    e, f, g, m = q[x0, y0, z1], q[x1, y0, z1], q[x0, y1, z1], q[x1, y1, z1]
    least = min(min(min(a, b), min(c, d)), min(min(e, f), min(g, m)))
    most = max(max(max(a, b), max(c, d)), max(max(e, f), max(g, m)))
    return least, most

@ti.func
def origin(i, j, k, t: ti.template()):
    x, y, z = (i + 0.5) * h, (j + 0.5) * h, (k + 0.5) * h
    ax, ay, az = sample(v[0], x, y, z), sample(v[1], x, y, z), sample(v[2], x, y, z)
    px, py, pz = x - 0.5 * t * ax, y - 0.5 * t * ay, z - 0.5 * t * az
    bx, by, bz = sample(v[0], px, py, pz), sample(v[1], px, py, pz), sample(v[2], px, py, pz)
    px, py, pz = x - 0.75 * t * bx, y - 0.75 * t * by, z - 0.75 * t * bz
    cx, cy, cz = sample(v[0], px, py, pz), sample(v[1], px, py, pz), sample(v[2], px, py, pz)
    ox = x - t * (2.0 / 9.0 * ax + 1.0 / 3.0 * bx + 4.0 / 9.0 * cx)
    oy = y - t * (2.0 / 9.0 * ay + 1.0 / 3.0 * by + 4.0 / 9.0 * cy)
    oz = z - t * (2.0 / 9.0 * az + 1.0 / 3.0 * bz + 4.0 / 9.0 * cz)
    return ox, oy, oz

@ti.kernel
def advect(before: ti.template(), after: ti.template(), back: ti.template()):
    for i, j, k in before:
        x, y, z = origin(i, j, k, dt)
        after[i, j, k] = sample(before, x, y, z)
    for i, j, k in before:
        x, y, z = origin(i, j, k, -dt)
        back[i, j, k] = sample(after, x, y, z)
    for i, j, k in before:
        x, y, z = origin(i, j, k, dt)
        corrected = after[i, j, k] + 0.5 * (before[i, j, k] - back[i, j, k])
        least, most = extremes(before, x, y, z)
        if corrected < least or corrected > most:
            corrected = sample(before, x, y, z)
        after[i, j, k] = corrected

initialise()

def step():
    for c in range(3):
        advect(dye[0][c], dye[1][c], dye[2][c])

def again():
    pass

def result():
    step()
    return float(sum(abs(dye[1][c].to_numpy().astype(float)).sum() for c in range(3)))
"""
_MGPCG = """
D, n = DIMENSIONS, SIZE // shrink
levels, leaf = 5, LEAF
axes = ti.ij if D == 2 else ti.ijk
r, z = [ti.field(ti.f32) for _ in range(levels)], [ti.field(ti.f32) for _ in range(levels)]
x, p, Ap = ti.field(ti.f32), ti.field(ti.f32), ti.field(ti.f32)
for level in range(levels):
    cell = ti.root.pointer(axes, 2 * n // (leaf << level)).dense(axes, leaf)
    if level == 0:
        cell.place(x, p, Ap)
    cell.place(r[level], z[level])
alpha, beta, total, old = [ti.field(ti.f32, shape=()) for _ in range(4)]

@ti.kernel
def initialise():
    for I in ti.grouped(ti.ndrange(*(((n // 2, n // 2 + n),) * D))):
        s = 1.0
        for d in ti.static(range(D)):
            s *= ti.sin(2.0 * 3.14159265 * (I[d] - n // 2) / n)
        r[0][I] = s + 0.3 * ti.sin(0.37 * I[0] + 0.11 * I[1])
        z[0][I] = 0.0
        Ap[I] = 0.0
        p[I] = 0.0
        x[I] = 0.0

@ti.kernel
def clear(f: ti.template()):
    for I in ti.grouped(f):
        f[I] = 0.0

@ti.func
def around(f: ti.template(), I):
    s = 0.0
    for d in ti.static(range(D)):
        e = ti.Vector.unit(D, d)
        s += f[I + e] + f[I - e]
    return s

@ti.kernel
def apply():
    for I in ti.grouped(Ap):
        Ap[I] = 2 * D * p[I] - around(p, I)

@ti.kernel
def find_alpha():
    total[None] = 0.0
    for I in ti.grouped(p):
        total[None] += p[I] * Ap[I]
    alpha[None] = old[None] / total[None]

@ti.kernel
def move_x():
    for I in ti.grouped(p):
        x[I] += alpha[None] * p[I]

@ti.kernel
def move_r():
    for I in ti.grouped(p):
        r[0][I] -= alpha[None] * Ap[I]

@ti.kernel
def find_beta():
    total[None] = 0.0
    for I in ti.grouped(p):
        total[None] += z[0][I] * r[0][I]
    beta[None] = total[None] / old[None]
    old[None] = total[None]

@ti.kernel
def first_beta():
    total[None] = 0.0
    for I in ti.grouped(p):
        total[None] += z[0][I] * r[0][I]
    beta[None] = 0.0
    old[None] = total[None]

@ti.kernel
def move_p():
    for I in ti.grouped(p):
        p[I] = z[0][I] + beta[None] * p[I]

@ti.kernel
def restrict(level: ti.template()):
    for I in ti.grouped(r[level]):
        residual = r[level][I] - (2 * D * z[level][I] - around(z[level], I))
        r[level + 1][I // 2] += 0.5 * residual

@ti.kernel
def prolong(level: ti.template()):
    for I in ti.grouped(z[level]):
        z[level][I] = z[level + 1][I // 2]

@ti.kernel
def smooth(level: ti.template(), colour: ti.template()):
    for I in ti.grouped(r[level]):
        if I.sum() & 1 == colour:
            z[level][I] = (r[level][I] + around(z[level], I)) / (2 * D)

def cycle():
    clear(z[0])
    for level in range(levels - 1):
        for _ in range(2 << level):
            smooth(level, 0)
            smooth(level, 1)
        clear(z[level + 1])
        clear(r[level + 1])
        restrict(level)
    for _ in range(50):
        smooth(levels - 1, 0)
        smooth(levels - 1, 1)
    for level in reversed(range(levels - 1)):
        prolong(level)
        for _ in range(2 << level):
            smooth(level, 1)
            smooth(level, 0)

def step():
    apply()
    find_alpha()
    move_x()
    move_r()
    cycle()
    find_beta()
    move_p()

def again():
    initialise()
    cycle()
    first_beta()
    move_p()

again()

def result():
    again()
    for _ in range(3):
        step()
    return float(abs(x.to_numpy().astype(float)).sum())
"""
_MLS_MPM = """
n_grid, n_particles = 64 // shrink, 200_000 // shrink**3
dx, inv_dx = 1.0 / n_grid, float(n_grid)
dt = 0.01 * dx
volume = dx**3
mass = 1000.0 * volume
mu, la = 1.15e5, 1.73e5
x = ti.Vector.field(3, ti.f32, shape=n_particles)
v = ti.Vector.field(3, ti.f32, shape=n_particles)
F = ti.Matrix.field(3, 3, ti.f32, shape=n_particles)
C = ti.Matrix.field(3, 3, ti.f32, shape=n_particles)
grid_v, grid_m = ti.Vector.field(3, ti.f32), ti.field(ti.f32)
top = ti.root.pointer(ti.ijk, max(1, n_grid // 16))
top.pointer(ti.ijk, 4).dense(ti.ijk, 4).place(grid_m, grid_v)

@ti.kernel
def initialise():
    for p in x:
        a, b = p * 0.7548776662, p * 0.5698402910
        c = p * 0.4311506001
        x[p] = [0.27 + 0.46 * (a - ti.floor(a)), 0.27 + 0.46 * (b - ti.floor(b)), 0.27 + 0.46 * (c - ti.floor(c))]
        v[p] = [0.0, -1.0, 0.0]
        F[p] = ti.Matrix.identity(ti.f32, 3)
        C[p] = ti.Matrix.zero(ti.f32, 3, 3)

@ti.kernel
def clear():
    for I in ti.grouped(grid_m):
        grid_m[I] = 0.0
        grid_v[I] = [0.0, 0.0, 0.0]

@ti.kernel
def scatter():
    for p in x:
        base = ti.cast(ti.floor(x[p] * inv_dx - 0.5), ti.i32)
        f = x[p] * inv_dx - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        new = (ti.Matrix.identity(ti.f32, 3) + dt * C[p]) @ F[p]
        F[p] = new
        U, sig, V = ti.svd(new)
        J = sig[0, 0] * sig[1, 1] * sig[2, 2]
        stress = 2.0 * mu * (new - U @ V.transpose()) @ new.transpose() + ti.Matrix.identity(ti.f32, 3) * (la * J * (J - 1.0))
        affine = (-dt * volume * 4.0 * inv_dx * inv_dx) * stress + mass * C[p]
        for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
            at = ti.Vector([i, j, k])
            d = (ti.cast(at, ti.f32) - f) * dx
            weight = w[i][0] * w[j][1] * w[k][2]
            grid_v[base + at] += weight * (mass * v[p] + affine @ d)
            grid_m[base + at] += weight * mass

@ti.kernel
def move():
    for I in ti.grouped(grid_m):
        if grid_m[I] > 0.0:
            grid_v[I] = (1.0 / grid_m[I]) * grid_v[I]
            grid_v[I][1] -= dt * 9.8

@ti.kernel
def walls():
    for I in ti.grouped(grid_m):
        for d in ti.static(range(3)):
            if I[d] < 3 and grid_v[I][d] < 0.0:
                grid_v[I][d] = 0.0
            if I[d] > n_grid - 3 and grid_v[I][d] > 0.0:
                grid_v[I][d] = 0.0

@ti.kernel
def gather():
    for p in x:
        base = ti.cast(ti.floor(x[p] * inv_dx - 0.5), ti.i32)
        f = x[p] * inv_dx - ti.cast(base, ti.f32)
        w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
        new_v, new_c = ti.Vector.zero(ti.f32, 3), ti.Matrix.zero(ti.f32, 3, 3)
        for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
            at = ti.Vector([i, j, k])
            weight, u = w[i][0] * w[j][1] * w[k][2], grid_v[base + at]
            new_v += weight * u
            new_c += 4.0 * inv_dx * weight * u.outer_product(ti.cast(at, ti.f32) - f)
        v[p], C[p] = new_v, new_c
        x[p] += dt * new_v

initialise()

def step():
    clear()
    scatter()
    move()
    walls()
    gather()

def again():
    pass

def result():
    initialise()
    for _ in range(5):
        step()
    return float(x.to_numpy().astype(float).sum())
"""
_TEXTURE = """
n = 1024 // shrink
pattern, turned, scaled, blended = (ti.Vector.field(3, ti.f32, shape=(n, n)) for _ in range(4))
angle = ti.field(ti.f32, shape=())

@ti.kernel
def source():
    for i, j in pattern:
        x, y = i / n, j / n
        pattern[i, j] = [ti.sin(20.0 * x) * 0.5 + 0.5, ti.sin(31.0 * y) * 0.5 + 0.5, ti.sin(17.0 * (x + y)) * 0.5 + 0.5]

@ti.func
def sample(image: ti.template(), x, y):
    s, t = max(0.0, min(n - 1.001, x)), max(0.0, min(n - 1.001, y))
    i, j = ti.cast(ti.floor(s), ti.i32), ti.cast(ti.floor(t), ti.i32)
    f, g = s - i, t - j
    low = image[i, j] * (1.0 - g) + image[i, j + 1] * g
    high = image[i + 1, j] * (1.0 - g) + image[i + 1, j + 1] * g
    return low * (1.0 - f) + high * f

@ti.kernel
def rotate():
    for i, j in turned:
        c, s = ti.cos(angle[None]), ti.sin(angle[None])
        x, y = i - 0.5 * n, j - 0.5 * n
        turned[i, j] = sample(pattern, c * x - s * y + 0.5 * n, s * x + c * y + 0.5 * n)

@ti.kernel
def scale():
    for i, j in scaled:
        scaled[i, j] = sample(pattern, 0.6 * i + 0.1 * n, 0.6 * j + 0.1 * n)

@ti.kernel
def blend():
    for i, j in blended:
        blended[i, j] = 0.3 * turned[i, j] + 0.7 * scaled[i, j]

angle[None] = 0.4

def step():
    source()
    rotate()
    scale()
    blend()

def again():
    pass

def result():
    step()
    return float(blended.to_numpy().astype(float).sum())
"""


_TEXTURE_JAX = """
import jax
import jax.numpy as jnp
import numpy as np
n = 1024 // shrink
half, places = 0.5 * n, jnp.arange(n, dtype=jnp.int32)

def sample(image, x, y):
    s, t = jnp.clip(x, 0.0, n - 1.001), jnp.clip(y, 0.0, n - 1.001)
    i, j = jnp.floor(s).astype(jnp.int32), jnp.floor(t).astype(jnp.int32)
    f, g = (s - i)[..., None], (t - j)[..., None]
    low = image[i, j] * (1.0 - g) + image[i, j + 1] * g
    high = image[i + 1, j] * (1.0 - g) + image[i + 1, j + 1] * g
    return low * (1.0 - f) + high * f

@jax.jit
def fields(places, angle):
    i, j = places[:, None].astype(jnp.float32), places[None, :].astype(jnp.float32)
    x, y = i / n, j / n
    waves = jnp.broadcast_arrays(20.0 * x, 31.0 * y, 17.0 * (x + y))
    pattern = jnp.stack([jnp.sin(w) * 0.5 + 0.5 for w in waves], axis=-1)
    c, s, x, y = jnp.cos(angle), jnp.sin(angle), i - half, j - half
    turned = sample(pattern, c * x - s * y + half, s * x + c * y + half)
    scaled = sample(pattern, *jnp.broadcast_arrays(0.6 * i + 0.1 * n, 0.6 * j + 0.1 * n))
    return pattern, turned, scaled, 0.3 * turned + 0.7 * scaled

angle = jnp.float32(0.4)

def step():
    global made
    made = fields(places, angle)

def again():
    pass

def result():
    step()
    return float(np.asarray(made[-1]).astype(float).sum())
"""


def _with(text: str, **words: object) -> str:
    """The text, in which words in capitals stand for numbers."""
    for word, value in words.items():
        text = text.replace(word, str(value))
    return text


MICRO: Mapping[str, str] = {
    "chain_copy": _CHAIN_COPY,
    "increments": _INCREMENTS,
    "fill_array": _FILL_ARRAY,
    "simple_advection": _SIMPLE_ADVECTION,
    "mpm_splitted": _MPM_SPLITTED,
    "derivatives": _DERIVATIVES,
    **SPARSE,
}
APPLICATIONS: Mapping[str, str] = {
    "maccormack": _MACCORMACK,
    "mgpcg_2d": _with(_MGPCG, DIMENSIONS=2, SIZE=512, LEAF=8),
    "mgpcg_3d": _with(_MGPCG, DIMENSIONS=3, SIZE=128, LEAF=4),
    "mls_mpm": _MLS_MPM,
    "texture": _TEXTURE,
}
TEXTS: Mapping[str, str] = {**MICRO, **APPLICATIONS}
# Programs of whole arrays in the language of JAX, as one function of its compiler; their `made` is what a period gives.
IN_JAX: Mapping[str, str] = {"texture": _TEXTURE_JAX}
