"""Fields of quantised types: what is in the bits of their words, in Python, compiled, and by the interpreter."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.errors import LanguageError
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.text import show

quant = ks.types.quant


@pytest.fixture(autouse=True)
def _program():
    ks.init(arch=ks.cpu)
    yield
    ks.reset()


def packed(*kinds, n: int = 8, bits: int = 32, shared: bool = False) -> list:
    fields = [ks.field(kind) for kind in kinds]
    words = ks.BitpackedFields(max_num_bits=bits)
    words.place(*fields, shared_exponent=shared)
    ks.root.dense(ks.i, n).place(words)
    return fields


def bits_of(field) -> np.ndarray:
    """The words of a field."""
    return field.leaves()[0].to_numpy()


def text_of(kernel) -> str:
    """The IR of a kernel without arguments, after its first call."""
    kernel()
    (instance,) = kernel._instances.values()
    return show(instance.ir)


@ks.kernel
def put(x: ks.template(), given: ks.types.ndarray()):
    for i in x:
        x[i] = given[i]


@pytest.mark.parametrize("by", ["interpreter", "compiled", "python"])
def test_integers_are_the_bits_of_their_word(by: str) -> None:
    a, b = packed(quant.int(5), quant.int(9, signed=False), bits=16)
    draw = np.random.default_rng(3)
    given = [draw.integers(-16, 16, 8), draw.integers(0, 512, 8)]
    for field, numbers in zip((a, b), given, strict=True):
        if by == "python":
            field.from_numpy(numbers)
        elif by == "compiled":
            put(field, numbers)
        else:
            with interpret():
                put(field, numbers)
    expected = [(int(x) & 31) | int(y) << 5 for x, y in zip(*given, strict=True)]
    assert bits_of(a).dtype == np.uint16 and bits_of(a).tolist() == expected
    assert a.to_numpy().tolist() == given[0].tolist()
    assert [b[k] for k in range(8)] == given[1].tolist()


def test_elements_of_an_array_are_the_bits_of_its_word() -> None:
    x = ks.field(quant.int(4, signed=False))
    ks.root.dense(ks.ij, (2, 2)).quant_array(ks.j, 8, max_num_bits=32).place(x)

    @ks.kernel
    def fill():
        for i, j in x:
            x[i, j] = (3 * i + 5 * j) % 16

    fill()
    expected = np.fromfunction(lambda i, j: (3 * i + 5 * j) % 16, (2, 16), dtype=int)
    assert x.to_numpy().tolist() == expected.tolist()
    words = [
        [sum(int(expected[i, 8 * w + k]) << 4 * k for k in range(8)) for w in range(2)]
        for i in range(2)
    ]
    assert bits_of(x).tolist() == words
    x[1, 3] = 9
    expected[1, 3] = 9
    y = ks.field(quant.int(4, signed=False))
    ks.root.dense(ks.ij, (2, 2)).quant_array(ks.j, 8, max_num_bits=32).place(y)
    y.copy_from(x)
    assert y.to_numpy().tolist() == expected.tolist()


def rounded_half(x: np.ndarray) -> np.ndarray:
    """Half floats are five bits of exponent and eleven others: Python's own are what ours are compared with."""
    return x.astype(np.float16).astype(np.float32)


def test_floats_of_sixteen_bits_are_halves() -> None:
    (a,) = packed(quant.float(exp=5, frac=11), n=200)
    draw = np.random.default_rng(5)
    # Ties are rounded up here and to even there: the numbers have none. Nor are they subnormal, which is zero here.
    given = (draw.uniform(-1, 1, 200) * 2.0**10).astype(np.float32)
    given[np.abs(given) < 1] += 2
    put(a, given)
    np.testing.assert_array_equal(a.to_numpy(), rounded_half(given))
    a.from_numpy(-given)
    np.testing.assert_array_equal(a.to_numpy(), rounded_half(-given))


def test_floats_that_are_too_large_are_the_greatest() -> None:
    (a,) = packed(quant.float(exp=5, frac=11), n=1)
    a[0] = 1e30
    assert a[0] >= 65504.0


def test_stores_right_behind_one_another_are_one_store() -> None:
    """Floats with a shared exponent would lose digits between them."""
    a, b = packed(*(quant.float(exp=8, frac=10),) * 2, n=2, shared=True)
    a[0] = b[0] = 1000.0

    @ks.kernel
    def fill(x: ks.f32, y: ks.f32):
        for i in a:
            a[i] = x
            b[i] = y

    fill(1e-30, 1e-30)
    assert a[0] == pytest.approx(1e-30, rel=1e-2) and b[1] == pytest.approx(1e-30, rel=1e-2)


def test_components_of_a_vector_may_change_places() -> None:
    v = ks.Vector.field(2, quant.int(7))
    words = ks.BitpackedFields(max_num_bits=16)
    words.place(v)
    ks.root.dense(ks.i, 3).place(words)
    v.from_numpy(np.arange(6).reshape(3, 2))

    @ks.kernel
    def swap():
        for i in v:
            v[i] = ks.Vector([v[i][1], v[i][0]])

    swap()
    assert v.to_numpy().tolist() == [[1, 0], [3, 2], [5, 4]]
    v.fill(3)
    assert v.to_numpy().tolist() == [[3, 3]] * 3


def test_additions_of_iterations_that_share_a_word_are_all_there() -> None:
    x = ks.field(quant.int(8, signed=False))
    ks.root.quant_array(ks.i, 4, max_num_bits=32).place(x)

    @ks.kernel
    def count(at: ks.types.ndarray()):
        for k in range(at.shape[0]):
            x[at[k]] += 1

    at = np.random.default_rng(1).integers(0, 4, 900).astype(np.int32)
    count(at)
    assert x.to_numpy().tolist() == np.bincount(at, minlength=4).tolist()


@pytest.mark.compiler
def test_threads_lose_no_parts_of_words_that_their_iterations_share() -> None:
    """The kind: a store of a part reads the word, so stores of others between both would be lost."""
    n = 1 << 18
    x = ks.field(quant.int(4))
    ks.root.dense(ks.i, n // 8).quant_array(ks.i, 8, max_num_bits=32).place(x)
    a, b = packed(quant.int(9), quant.int(20), n=n)

    @ks.kernel
    def put_all(at: ks.types.ndarray()):
        for k in range(at.shape[0]):
            x[at[k]] = 7
            a[at[k]] = 5
        for k in range(at.shape[0]):
            b[at[k] % 4] += 1

    at = np.random.default_rng(1).permutation(n).astype(np.int32)
    for _ in range(3):
        x.fill(0)
        a.fill(0)
        b.fill(0)
        put_all(at)
        assert np.count_nonzero(x.to_numpy() == 7) == np.count_nonzero(a.to_numpy() == 5) == n
        assert b.to_numpy()[:4].tolist() == [n // 4] * 4


def test_loops_are_in_order_only_if_iterations_share_words() -> None:
    x, y = packed(quant.int(9), quant.int(9))

    @ks.kernel
    def apart():
        for i in x:
            x[i] = i
        for i in range(8):
            y[i] += i

    @ks.kernel
    def together():
        for i in range(8):
            x[i // 2] += i

    assert "once" not in text_of(apart)
    assert "once" in text_of(together)


def test_a_loop_over_active_cells_may_share_no_words() -> None:
    x, (n,) = ks.field(ks.i32), packed(quant.int(20))
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(x)

    @ks.kernel
    def count():
        for i in x:
            n[i % 4] += 1

    with pytest.raises(LanguageError, match="to words that they share: store to the cell"):
        count()


def test_an_index_reads_its_word_after_the_store_before() -> None:
    a, b = packed(quant.int(8), quant.int(8))

    @ks.kernel
    def twice():
        for _ in range(1):
            b[b[0]] = 7
            a[b[0]] = 2

    twice()
    assert (a.to_numpy()[[0, 7]].tolist(), b[0]) == ([0, 2], 7)


def test_an_infinity_leaves_its_partner_a_number() -> None:
    x, y = packed(quant.float(8, 10), quant.float(8, 10), shared=True)
    x[0], y[0] = np.inf, 1.0
    assert x[0] == np.inf
    assert y[0] == 0.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ks.field(quant.int(5), shape=3), "place it in a ks.BitpackedFields"),
        (lambda: ks.field(quant.int(5)).to_numpy(), "place it in a ks.BitpackedFields"),
        (lambda: packed(quant.int(20), quant.int(20)), "take 40 bits, more than its 32"),
        (lambda: packed(quant.int(5), bits=12), "8, 16, 32 or 64 bits, not 12"),
        (lambda: packed(quant.int(5), shared=True), "At least 2 fields"),
        (lambda: packed(quant.int(5), quant.int(5), shared=True), "are of floats"),
        (lambda: ks.types.struct(a=quant.int(9)), "qi9 is no type of elements"),
        (lambda: quant.int(65), "1 to 64 bits, not 65"),
        (lambda: quant.int(5, compute=ks.f32), "one of integers, not f32"),
        (lambda: quant.fixed(8, scale=0.0), "scale of fixed-point numbers is positive"),
        (lambda: quant.float(exp=9, frac=5), "1 to 8 bits, not 9"),
        (lambda: quant.float(exp=5, frac=5, compute=ks.f64), "computed with as f32"),
        (lambda: ks.BitpackedFields(32).place(ks.field(ks.i32)), "only fields of quantised types"),
        (
            lambda: ks.root.quant_array(ks.i, 9, max_num_bits=32).place(ks.field(quant.int(4))),
            "more than the 32 bits",
        ),
        (lambda: packed(quant.int(5))[0].grad, "its type is quantised"),
    ],
)
def test_what_cannot_be_done_is_said(call, said: str) -> None:
    with pytest.raises(LanguageError, match=said) as found:
        call()
    assert found.value.where.file == __file__
