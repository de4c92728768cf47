"""A backend is four small interfaces: what has to be written is little, and whoever asks is handed the one that answers."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from kernelscape.runtime import device
from kernelscape.runtime.api import backend
from kernelscape.runtime.api.backend import AbstractBuilder, AbstractDevice
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.device import backends, open_device
from kernelscape.runtime.fake import device as fake

from ..contracts.device import DeviceContract
from .sources import source as make_source

INTERFACES = tuple(
    getattr(backend, f"Abstract{name}") for name in ("Machine", "Builder", "Runner", "Reporter")
)
MOST_METHODS, MOST_ABSTRACT = 8, 3

# What must be written of a backend, and nothing else.
METAL = """
from ..api.backend import AbstractBuilder, AbstractDevice, AbstractMachine, AbstractReporter, AbstractRunner
from ..fake.device import FakeBuilder, FakeMachine, FakeReporter, FakeRunner

FAKE = FakeMachine(), FakeBuilder(), FakeRunner(), FakeReporter()


class Machine(AbstractMachine):
    def facts(self):
        return FAKE[0].facts()


class Builder(AbstractBuilder):
    def dialect(self):
        return FAKE[1].dialect()

    def build(self, source):
        return FAKE[1].build(source)


class Runner(AbstractRunner):
    def load(self, artifact):
        return FAKE[2].load(artifact)

    def allocate(self, shape, dtype, *, as_numpy=False):
        return FAKE[2].allocate(shape, dtype, as_numpy=as_numpy)

    def time(self, calls, protocol, beside=None):
        return FAKE[2].time(calls, protocol, beside)


class Reporter(AbstractReporter):
    def command_line(self, source, file, compiler):
        return FAKE[3].command_line(source, file, compiler)


class Metal(AbstractDevice):
    name = "metal"

    def __init__(self, options):
        self.machine, self.builder = Machine(), Builder()
        self.runner, self.reporter = Runner(), Reporter()
"""
OPEN = "from .device import Metal as open_backend\n"


def public(interface: type) -> set[str]:
    return {
        name
        for name, x in vars(interface).items()
        if not name.startswith("_") and (inspect.isfunction(x) or isinstance(x, property))
    }


@pytest.mark.parametrize("interface", INTERFACES, ids=lambda i: i.__name__)
def test_an_interface_is_small_and_says_what_it_is_for(interface: type) -> None:
    assert len(public(interface)) <= MOST_METHODS
    assert 1 <= len(interface.__abstractmethods__) <= MOST_ABSTRACT
    assert all(inspect.getdoc(getattr(interface, name)) for name in public(interface))
    assert inspect.getdoc(interface)


def test_a_device_holds_the_four_and_gives_only_devices_and_its_worker() -> None:
    assert public(AbstractDevice) == {"others", "with_all_passes", "worker"}
    names = {x.strip('"') for x in AbstractDevice.__annotations__.values()}
    assert names == {"str", *(i.__name__ for i in INTERFACES)}


@pytest.mark.parametrize("name", [*backends(), "fake"])
def test_every_backend_has_all_four(name: str) -> None:
    found = open_device(name)
    assert found.name == name
    for part, interface in zip(
        (found.machine, found.builder, found.runner, found.reporter), INTERFACES, strict=True
    ):
        assert isinstance(part, interface)


def test_what_is_left_out_has_a_meaning(tmp_path: Path) -> None:
    class Plain(AbstractBuilder):
        dialect = fake.FakeBuilder.dialect

        def build(self, source):
            return source.key

    one, two = make_source("int one;"), make_source("int two;")
    plain = Plain()
    assert (plain.can_build, plain.most_together, plain.adopt("", tmp_path)) == (True, 1, False)
    assert plain.build_together([one, two]) == [one.key, two.key]
    for ask in (fake.FakeMachine().calibrate, lambda: fake.FakeReporter().report(one)):
        with pytest.raises(DeviceError, match="this backend"):
            ask()


@pytest.fixture
def metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AbstractDevice:
    """A further backend: a folder with what the interfaces ask for, found by its name."""
    here = Path(device.__file__).parent
    for known in ("cpu", "fake"):
        (tmp_path / known).symlink_to(here / known)
    (tmp_path / "metal").mkdir()
    (tmp_path / "metal/__init__.py").write_text(OPEN)
    (tmp_path / "metal/device.py").write_text(METAL)
    package = sys.modules[device.__package__]
    monkeypatch.setattr(device, "__file__", str(tmp_path / "device.py"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    yield open_device("metal")
    for name in [m for m in sys.modules if m.startswith(f"{device.__package__}.metal")]:
        del sys.modules[name]


class TestFurtherBackend(DeviceContract):
    @pytest.fixture
    def device(self, metal):
        assert backends() == ("cpu", "metal")
        return metal

    @pytest.fixture
    def source(self):
        return make_source()

    @pytest.fixture
    def broken_source(self):
        return make_source("#error no\n")
