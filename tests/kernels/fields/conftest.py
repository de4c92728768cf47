import kernelscape as ks
import pytest


@pytest.fixture(autouse=True)
def program():
    """A program with Taichi's defaults."""
    ks.init(arch=ks.cpu)
    yield
    ks.reset()
