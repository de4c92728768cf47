"""Shared by all tests: golden text files, rewritten with `pytest --update-golden`, the command called in this process, CPU times
(cpu_times.py), and how Hypothesis draws.

Examples are the same in every run, so that a run says something about the change and not about its luck;
`pytest --hypothesis-profile=explore` draws new ones.
"""

import gc
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import kernelscape as ks
import pytest
from hypothesis import settings
from kernelscape.cli import commands as cli
from kernelscape.codegen.passes.pipeline import verifying
from kernelscape.kernels.fields.program import current_program
from kernelscape.runtime import stored_runs
from kernelscape.runtime.engine import ahead
from kernelscape.runtime.scratch import Scratch

from . import fork_server
from .cpu_times import Meter, Table, read_budget

# Tests count what is compiled; those of ahead.py set what they need.
ahead.has_idle_core = lambda: False
stored_runs.LEAST_S = math.inf  # tests change how references compute: no run of theirs is stored
gc.set_threshold(100_000, 20, 20)  # what is imported is looked through again and again otherwise

settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("fixed")

_TEMPORARY = pytest.StashKey[Scratch]()
_OF_PYTHON = "pymp-"  # of multiprocessing, which removes it when the process ends

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden from what the tests produce",
    )
    parser.addoption(
        "--cpu-times", type=Path, metavar="FILE", help="write the CPU seconds of each test to FILE"
    )
    parser.addoption(
        "--wheel-python", metavar="PYTHON", help="another Python, for which test_wheel.py installs"
    )
    parser.addoption(
        "--hold-budget", action="store_true", help="fail if a test exceeds tests/budget.toml"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Gives this session a temporary folder of its own: files that tests and their processes leave there are seen. Folders that
    pytest itself makes, and keeps for people to look at, stay where they were.
    """
    system = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # Short, and not inside of another session's: the path of a socket has at most 107 bytes.
    scratch = Scratch("ks-tests-", Path(system))
    temporary = scratch.path / "t"
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    # No search begins with what the user of this machine has found.
    os.environ["XDG_DATA_HOME"] = str(scratch.path / "data")
    config.stash[_TEMPORARY] = scratch
    subprocess.Popen = fork_server.Popen  # type: ignore[misc]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    budget = read_budget()
    config.pluginmanager.register(Meter(budget.most_s))
    if not hasattr(config, "workerinput"):  # the process that hears of all tests
        file, is_held = config.getoption("--cpu-times"), config.getoption("--hold-budget")
        config.pluginmanager.register(Table(budget, file, is_held=is_held))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first."""
    items[:] = [items[k] for k in read_budget().in_order([item.nodeid for item in items])]


def pytest_collection_finish() -> None:
    """Freezes the objects that exist by now. No later collection visits them, and no forked child copies their pages for that."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session that leaves anything there has failed."""
    fork_server.SERVERS.close()
    scratch = session.config.stash[_TEMPORARY]
    names = sorted(p.name for p in (scratch.path / "t").iterdir())
    left = [name for name in names if not name.startswith(_OF_PYTHON)]
    scratch.close()
    if left:
        print(f"\nleft in the temporary folder: {', '.join(left)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def nvrtc_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of NVRTC: its processes, which start as slowly as they compile a short text, are kept for one folder.

    A test with a folder of its own ends those of all tests before, and is charged for their CPU time.
    """
    return tmp_path_factory.mktemp("nvrtc")


@pytest.fixture(autouse=True)
def _no_word_of_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silences the line about compiling on stderr: any test may be the first to use code that numba has not compiled yet."""
    monkeypatch.setattr("kernelscape.cli.options.tell_when_compiling", lambda tell: None)


@pytest.fixture(scope="module", autouse=True)
def _nothing_found_is_left_to_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Gives each file of tests a tuned store of its own: searches begin with what earlier ones have stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_program_is_left_to_others() -> Iterator[None]:
    """Ends the program that a file of tests has begun: it would give other files' kernels its default types."""
    before = current_program()
    yield
    if current_program() is not before:
        ks.reset()


@pytest.fixture(scope="session", autouse=True)
def passes_are_verified() -> Iterator[None]:
    """The loop IR is verified after every pass of all that tests lower in this process."""
    with verifying():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(text, name)` compares text to tests/golden/name, or rewrites that file under
    --update-golden.
    """

    def compare(text: str, name: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), (
            f"{path.name} is missing: run pytest --update-golden and read what it wrote"
        )
        assert text == path.read_text()

    return compare


@pytest.fixture
def explore(capfd: pytest.CaptureFixture[str]):
    """Run a command line; exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return call
