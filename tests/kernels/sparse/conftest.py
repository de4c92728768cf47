from collections.abc import Iterator

import kernelscape as ks
import pytest


@pytest.fixture(params=["compiled", "interpreted"])
def program(request: pytest.FixtureRequest) -> Iterator[None]:
    """A program with Taichi's defaults, whose kernels are compiled, or interpreted on the fields as they are."""
    ks.init(arch=ks.cpu)
    if request.param == "interpreted":
        with ks.interpret():
            yield
    else:
        yield
    ks.reset()
