from collections.abc import Callable, Iterator

import kernelscape as ks
import pytest
from kernelscape.kernels.sparse import layout


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


@pytest.fixture
def limit_layouts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, object], None]]:
    """`limit_layouts(name, value)` sets a constant of layouts. These are kept by tree, so none goes from one test to another."""

    def limit(name: str, value: object) -> None:
        monkeypatch.setattr(layout, name, value)
        layout.layout_of.cache_clear()

    yield limit
    layout.layout_of.cache_clear()
