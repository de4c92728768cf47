"""A path tracer: light is followed backwards from the eye through a scene that is given by distances to its surfaces.

python renderer.py [picture.png]
"""

import sys
from typing import Any

import kernelscape as ks
import numpy as np
from kernelscape import math as km

NEAR, FAR, STEPS, BOUNCES = 1e-3, 30.0, 96, 4


def render(width: int, height: int, samples: int) -> np.ndarray:
    """The light that reaches each pixel, shape (height, width, 3), averaged over paths."""
    ks.init(arch=ks.cpu, random_seed=4)
    light = ks.Vector.field(3, ks.f32, shape=(width, height))

    @ks.func
    def distances(p: Any) -> Any:
        """To the floor, a ring, a pierced ball and a lamp."""
        floor = p[1] + 1.0
        q = ks.Vector([ks.Vector([p[0] + 1.3, p[2] - 0.2]).norm() - 0.75, p[1] + 0.75])
        ring = q.norm() - 0.25
        c = p - km.vec3(1.0, -0.1, 0.0)
        ball = c.norm() - 0.9
        tube = ks.min(km.length(c.xy), km.length(c.yz), km.length(c.xz)) - 0.35
        lamp = (p - km.vec3(-0.6, 2.6, -0.6)).norm() - 0.7
        return ks.Vector([floor, ring, ks.max(ball, -tube), lamp])

    @ks.func
    def distance(p: Any) -> Any:
        return distances(p).min()

    @ks.func
    def march(origin: Any, direction: Any) -> Any:
        """How far a ray goes until it meets a surface; FAR where it meets none."""
        t, k = 0.0, 0
        while k < STEPS and t < FAR:
            d = distance(origin + t * direction)
            if d < NEAR:
                break
            t += d
            k += 1
        return ks.min(t, FAR)

    @ks.func
    def normal(p: Any) -> Any:
        n = km.vec3(0.0)
        for k in ks.static(range(3)):
            e = ks.Vector.unit(3, k, ks.f32) * NEAR
            n[k] = distance(p + e) - distance(p - e)
        return km.normalize(n)

    @ks.func
    def around(n: Any) -> Any:
        """A direction of the half space above n, the likelier the steeper (Lambert)."""
        z = 2.0 * ks.random() - 1.0
        r = ks.sqrt(1.0 - z * z)
        angle = 2.0 * km.pi * ks.random()
        return km.normalize(n * 1.001 + km.vec3(r * ks.cos(angle), r * ks.sin(angle), z))

    @ks.func
    def colour(p: Any, d: Any) -> Any:
        """How much of the light a surface sends back."""
        result = km.vec3(0.75, 0.3, 0.22)
        if d[2] < 2 * NEAR:
            result = km.vec3(0.3, 0.55, 0.8)
        if d[0] < 2 * NEAR:
            tile = ks.cast(ks.floor(p[0] * 1.5) + ks.floor(p[2] * 1.5), ks.i32) % 2
            result = km.vec3(0.75) if tile == 0 else km.vec3(0.5)
        return result

    @ks.kernel
    def trace() -> None:
        for i, j in light:
            screen = km.vec2(i + ks.random() - width / 2, j + ks.random() - height / 2) / height
            origin = km.vec3(0.0, 0.6, -5.5)
            direction = km.normalize(km.vec3(screen, 1.4) + km.vec3(0.0, -0.15, 0.0))
            share, seen = km.vec3(1.0), km.vec3(0.0)
            for _ in range(BOUNCES):
                t = march(origin, direction)
                if t >= FAR:
                    seen += (
                        share
                        * km.mix(km.vec3(0.5, 0.6, 0.7), km.vec3(0.1, 0.15, 0.3), direction[1])
                        * 0.5
                    )
                    break
                p = origin + t * direction
                d = distances(p)
                if d[3] < 2 * NEAR:
                    seen += share * km.vec3(9.0, 8.0, 6.5)
                    break
                n = normal(p)
                share *= colour(p, d)
                origin = p + 3 * NEAR * n
                direction = around(n)
            light[i, j] += seen

    for _ in range(samples):
        trace()
    seen: np.ndarray = light.to_numpy().transpose(1, 0, 2)[::-1] / samples
    return seen


if __name__ == "__main__":
    from PIL import Image

    shown = 1 - np.exp(-render(width=400, height=260, samples=128))
    picture = (255 * shown ** (1 / 2.2)).astype(np.uint8)
    Image.fromarray(picture).save(sys.argv[1] if len(sys.argv) > 1 else "renderer.png")
