"""Formats of what kernels print: each fits the type of its value, and constants are shown as Python shows them."""

from __future__ import annotations

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.interpret.executor import interpret

C, F, T, NAME, ITEMS = 3, 0.1, True, "txt", (1, 2.5)


class Scene:
    scale = 1e20


scene = Scene()


@pytest.fixture(autouse=True)
def program():
    ks.init(debug=True)
    yield
    ks.reset()


@ks.kernel
def constants(n: ks.i32, x: ks.f32):
    print(f"{C} {F} {T} {NAME} {ITEMS} {scene.scale} {None}")
    print(f"{C + 1} {F * 3} {not T} {ITEMS[1]} {10**12} {1 / 3} {-0.0} {NAME!r}")
    print("{} {:.2f} {:>5}|".format(F, C, NAME))  # noqa: UP032 - what is tested
    print("%s %d %.1f" % (T, C, C))  # noqa: UP031 - what is tested
    print(f"{C:.1f} {NAME:>5} {F:.3f} {C:i} {n} {x}")
    a = 0.1
    print(f"{a}", C, F, T)


def test_constants_are_shown_as_python_shows_them(capfd) -> None:
    """Kind: constants that were shown in the types of run values (1 for True, 0.500000 for 0.5)."""
    expected = (
        f"{C} {F} {T} {NAME} {ITEMS} {scene.scale} {None}\n"
        f"{C + 1} {F * 3} {not T} {ITEMS[1]} {10**12} {1 / 3} {-0.0} {NAME!r}\n"
        f"{F} {C:.2f} {NAME:>5}|\nTrue 3 3.0\n3.0   txt 0.100 3 7 2.500000\n0.100000 3 0.100000 1\n"
    )
    constants(7, 2.5)
    assert capfd.readouterr().out == expected
    with interpret():
        constants(7, 2.5)
    assert capfd.readouterr().out == expected


@ks.kernel
def run_values(n: ks.i32, x: ks.f32, b: ks.u8):
    v = ks.Vector([x, 2 * x])
    print(f"{n:5d}|{n:-5d}|{n:x} {x:.3f} {x:e} {b:d} {b:#x} {v:.1f} {x > 0:d}")
    print("{:d} {:.2f}".format(n, x))  # noqa: UP032 - what is tested
    print("%d %5.1f %s %f" % (n, x, x, x))  # noqa: UP031


def test_formats_that_fit_are_those_of_c(capfd) -> None:
    expected = "   -7|-7   |fffffff9 2.500 2.500000e+00 200 0xc8 [2.5, 5.0] 1\n-7 2.50\n-7   2.5 2.500000 2.500000\n"
    run_values(-7, 2.5, 200)
    assert capfd.readouterr().out == expected
    with interpret():
        run_values(-7, 2.5, 200)
    assert capfd.readouterr().out == expected


@ks.kernel
def claims(n: ks.i32, x: ks.f32):
    assert n > 0, f"x is {x:.2f} of {C}"


def test_a_message_of_an_assertion_has_its_formats() -> None:
    """Kind: formats that are read and then left out."""
    with pytest.raises(AssertionError, match=r"x is 2\.50 of 3"):
        claims(-1, 2.5)
    with interpret(), pytest.raises(AssertionError, match=r"x is 2\.50 of 3"):
        claims(-1, 2.5)


SHOWN = {
    "x": "floats",
    "n": "integers",
    "b": "integers",
    "t": "integers",
    "v": "floats",
    "z": "none",
}
LETTERS = {"integers": "dioxXu", "floats": "eEfFgGaA"}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize(
    "spec", ["d", "5d", "u", "#x", "o", "i", "X", "f", ".2f", "e", "g", "a", "G"]
)
def test_a_format_of_another_type_is_a_sentence(written, name: str, spec: str) -> None:
    """Kind: a conversion that reads the bits of another type; every conversion, of each kind of value, in each spelling."""
    fits = spec[-1] in LETTERS.get(SHOWN[name], "")
    percent = (
        "" if spec == "a" else f"    print('%{spec}' % {name})\n"
    )  # which Python's % does not know as C does
    for line in (
        f"print(f'{{{name}:{spec}}}')",
        f"print('{{:{spec}}}'.format({name}))",
        percent.strip(),
        f"assert x > 0, f'{{{name}:{spec}}}'",
    ):
        if line:
            names = written(
                "@ks.kernel\ndef f(x: ks.f32, n: ks.i64, b: ks.u8):\n"
                "    t = x > 0\n    v = ks.Vector([x, x])\n    z = ks.Struct(a=x, b=n)\n"
                + f"    {line}"
            )
            if fits:
                names["f"].instantiate(1.0, 2, 3)
            else:
                with pytest.raises(LanguageError, match=r"mine.py:7: the format `.*` is one of"):
                    names["f"].instantiate(1.0, 2, 3)


@pytest.mark.parametrize("spec", ["s", "c", "lld", "<5d", ",d", "b", "n", "9999d"])
def test_formats_that_c_does_not_have_are_sentences(written, spec: str) -> None:
    names = written(f"@ks.kernel\ndef f(n: ks.i32):\n    print(f'{{n:{spec}}}')")
    with pytest.raises(LanguageError, match="is none of C's"):
        names["f"].instantiate(1)


@pytest.mark.parametrize("shown", ["{NAME:d}", "{F:d}", "{F:x}"])
def test_constants_that_python_does_not_show_so_are_sentences(written, shown: str) -> None:
    names = written(f"F, NAME = 0.5, 'txt'\n@ks.kernel\ndef f(n: ks.i32):\n    print(f'{shown}')")
    with pytest.raises(LanguageError, match=r"mine.py:5: the format"):
        names["f"].instantiate(1)
