"""Memory accesses in CUDA text: loads and stores of elements and vectors.

Vectors that may be misaligned use other helpers.
"""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from ..text import csyntax as c
from ..text.cprint import expression
from ..text.names import RESERVED_CUDA
from .cuda_prelude import PUBLISH, STRONG
from .cuda_vectors import HINTED_LOADS, STREAMING_STORE
from .emitter import Builder
from .memory import Emitter, Memory, Value


class CudaMemory(Memory):
    """CUDA text of loads and stores on a GPU."""

    reserved = RESERVED_CUDA

    def access(self, w: Emitter, operation: str, index: c.CExpr, lanes: int) -> str:
        """Returns the name of the vector load or store `operation`, or of its element-by-element variant.

        The variant is taken unless `index` is surely a multiple of `lanes`, so that the vector is
        aligned.
        """
        is_aligned = w.is_multiple(index, lanes)
        return operation if is_aligned else f"{operation}_unaligned"

    def alignment(
        self, w: Emitter, base: c.CExpr, index: c.CExpr, value: Value
    ) -> tuple[c.CExpr, ...]:
        return ()

    def element(self, base: c.CExpr, index: c.CExpr, hint: str) -> c.CExpr:
        place = c.Index(base, index)
        return c.Call(HINTED_LOADS[hint], (c.Un("&", place),)) if hint else place

    def assignment(self, place: c.CExpr, x: c.CExpr, stream: bool) -> c.CStmt:
        if stream:
            return c.Evaluate(c.Call(STREAMING_STORE, (c.Un("&", place), x)))
        return c.Assign(place, x)

    def strong_load(self, w: Emitter, place: c.CExpr) -> c.CExpr:
        w.prelude.defined.setdefault("strong", STRONG)
        return c.Call("load_strong", (c.Un("&", place),))

    def strong_store(self, w: Emitter, place: c.CExpr, x: c.CExpr, publishes: bool) -> c.CStmt:
        w.prelude.defined.setdefault("strong", STRONG)
        if publishes:
            w.prelude.defined.setdefault("publish", PUBLISH)
        function = "publish" if publishes else "store_strong"
        return c.Evaluate(c.Call(function, (c.Un("&", place), x)))

    def fetching(self, op: str, is_together: bool) -> str:
        return f"fetch_{op}_together" if is_together and op == "add" else f"fetch_{op}"

    def strided(
        self,
        w: Emitter,
        base: c.CExpr,
        index: c.CExpr,
        dtype: DType,
        lanes: int,
        stride: int,
        hint: str,
    ) -> c.CExpr:
        places = (c.add(index, c.number(k * stride)) for k in range(lanes))
        items = tuple(self.element(base, x, hint) for x in places)
        return self.vector_of(w, dtype, lanes, items)

    def vector_of(
        self, w: Emitter, dtype: DType, lanes: int, items: tuple[c.CExpr, ...]
    ) -> c.CExpr:
        helper = "splat" if len(items) == 1 else "make"
        return c.Call(w.prelude.use(helper, dtype, lanes), items)


def gather(w: Builder, array: str, places: list[c.CExpr], dtype: DType) -> Value:
    """Returns a vector of the elements of `array` at the indices `places`; a scope loads it only once."""
    key = (array, ", ".join(map(expression, places)), len(places))
    if key not in w.block.known:
        items = tuple(c.Index(c.Id(array), x) for x in places)
        vector = Value(w.memory.vector_of(w, dtype, len(items), items), dtype, len(items))
        return w.remember(key, array, vector)
    return w.block.known[key]
