"""Loops of a kernel: over ranges, boxes, arrays and fields; unrolled loops; `while`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..fields.tree import SNode
from ..ir import kernel as ir
from ..ir.simplify import binary, cast, compare, const, unary
from . import values
from .bounds import Bounds, extent_of, held_bounds
from .control import escapes, none_of, targets_of
from .errors import ZERO_STEP, KernelSyntaxError, KernelValueError
from .intrinsics import grouped, ndrange
from .protocol import BodyCompiler, Frontend
from .scopes import Jumps, LoopVar, Pass
from .sparse import number_of

_ONE = const(1, ir.DType.i64)


class Loops:
    """Compiles the loops of a kernel in a pass. `statements` compiles their bodies."""

    def __init__(self, state: Pass, frontend: Frontend, statements: BodyCompiler) -> None:
        self._state, self._expr, self._statements = state, frontend, statements

    def run(self, node: ast.For) -> str | None:
        """Compiles a for loop.

        Returns "return" if the loop is unrolled and an iteration surely returns from the function, else None.
        """
        state = self._state
        if node.orelse:
            state.fail(
                "for-else is not supported in a kernel: remove the else", node, KernelSyntaxError
            )
        inside = self._expr.static_argument(node.iter)
        if inside is not None:
            self._check_static(inside)
            return self._written_out(node, self._expr.static_items(inside, node.iter))
        is_grouped, iterated = False, node.iter
        if (
            isinstance(iterated, ast.Call)
            and self._expr.callee(iterated) is grouped
            and len(iterated.args) == 1
        ):
            is_grouped, iterated = True, iterated.args[0]
        callee = self._expr.callee(iterated) if isinstance(iterated, ast.Call) else None
        if callee is range and isinstance(iterated, ast.Call):
            self._positional(iterated, 1)
            if not isinstance(node.target, ast.Name):
                state.fail(
                    f"range gives one index, `{ast.unparse(node.target)}` is not one name",
                    node,
                    KernelSyntaxError,
                )
            self._refuse_known(node)
            self._nest([self._range_bounds(iterated)], node, is_grouped)
        elif callee is ndrange and isinstance(iterated, ast.Call):
            self._positional(iterated)
            if not state.rules.is_strict:
                self._refuse_known(node)
            bounds = [self._pair(x, iterated) for x in self._expr.values(iterated.args)]
            self._nest(bounds, node, is_grouped)
        else:
            self._over_value(self._expr.value(iterated), node, is_grouped)
        return None

    def _check_static(self, inside: ast.expr) -> None:
        """Raises LanguageError for `for ... in ks.static(inside)` if `inside` is marked static again, or is a field."""
        if not isinstance(inside, ast.Call):
            return
        written = f"`ks.static({ast.unparse(inside)})`"
        if self._expr.static_argument(inside) is not None:
            text = f"{written} marks one loop twice: write ks.static once"
            self._state.fail(text, inside, KernelSyntaxError)
        over = inside.args[0] if self._expr.callee(inside) is grouped and inside.args else inside
        if isinstance(over, ast.Name | ast.Attribute) and isinstance(
            self._expr.value(over), values.ArrayRef | values.StructArray
        ):
            text = f"{written} writes out a loop over all elements: leave out ks.static, or give ks.ndrange"
            self._state.fail(text, inside, KernelSyntaxError)

    def _positional(self, call: ast.Call, least: int = 0) -> None:
        if call.keywords or len(call.args) < least:
            self._state.fail(
                "range and ks.ndrange take their bounds by position", call, KernelSyntaxError
            )

    def _over_value(self, x: values.Value, node: ast.For, is_grouped: bool) -> None:
        """Compiles a loop over the indices of an array or field, or over the items of a tuple."""
        state = self._state
        if isinstance(x, values.ArrayRef | values.StructArray):
            self._refuse_known(node)
            first = x
            while isinstance(first, values.StructArray):
                first = first.members[0][1]
            offset = first.offset or (0,) * len(x.shape)
            placed = state.placed.get(first.param.name)
            if first.packed is not None and first.packed.parts:
                self._over_words(first, first.packed, node, is_grouped)
                return
            if placed is not None:
                self._active((placed.tree, placed.node), offset, node, is_grouped)
                return
            bounds = [
                (const(o, ir.DType.i64), const(o + n, ir.DType.i64), _ONE)
                for o, n in zip(offset, x.shape, strict=True)
            ]
            self._nest(bounds, node, is_grouped)
        elif isinstance(x, values.TupleValue | values.MatrixValue):
            self._written_out(node, self._expr.taken_apart(x))
        elif isinstance(x, values.Static) and isinstance(x.python, SNode):
            self._refuse_known(node)
            found = number_of(state, x.python)
            if found is not None:
                self._active(found, (0,) * len(x.python.shape), node, is_grouped)
                return
            ends = [(const(0, ir.DType.i64), const(n, ir.DType.i64), _ONE) for n in x.python.shape]
            self._nest(ends, node, is_grouped)
        else:
            state.fail(
                f"a for loop over `{ast.unparse(node.iter)}` is not supported in a kernel: use "
                f"range, ks.ndrange, ks.static, or an array or field",
                node,
            )

    def _active(
        self, place: tuple[str, int], offset: Sequence[int], node: ast.For, is_grouped: bool
    ) -> None:
        """Compiles a loop over the active cells of a node of a sparse tree.

        `place`: name of the tree, and number of the node. `offset`: least index of the field along each axis.
        """
        state, (tree, number) = self._state, place
        shape = state.structures[tree].tree.shape(number)
        names = [state.fresh(n) for n in self._names(node, len(shape), is_grouped)]
        jumps = escapes(node.body, self._statements.taken, targets_of(node))
        if "return" in jumps or "break" in jumps:
            state.fail("a loop over active cells cannot be left early: use a flag", node)
        indices = []
        for name, n, o in zip(names, shape, offset, strict=True):
            state.extents[name] = n
            index = ir.LoopIndex(name, self._index_type())
            indices.append(values.Typed(binary("add", index, const(o, index.dtype))))
        state.is_serial = False
        with state.frame.scope(), state.guarded(), state.collected() as body:
            self._bind(node, indices, is_grouped)
            state.n_parallel += 1
            state.iteration = self._iteration(indices)
            self._body(node, Jumps(can_break=False), True)
            state.iteration = None
        where = state.frame.parsed.where(node)
        state.emit(ir.ForActive(tree, number, tuple(names), tuple(body), where))

    def _over_words(
        self, x: values.ArrayRef, packed: values.Packed, node: ast.For, is_grouped: bool
    ) -> None:
        """A loop over the elements of words: over the words, and in each over its elements."""
        state = self._state
        where = state.frame.parsed.where(node)
        names = self._names(node, len(packed.parts), is_grouped)
        if escapes(node.body, self._statements.taken, targets_of(node)) & {"break", "return"}:
            state.fail("a loop over elements of words cannot be left early: use a flag", node)
        placed = state.placed.get(x.param.name)
        n_axes = sum(axis >= 0 for axis, _, _ in packed.parts)
        extents = x.param.shape[len(x.param.shape) - n_axes :] if n_axes else ()
        words = [
            state.fresh(f"{names[k]}_word") for k, (a, _, _) in enumerate(packed.parts) if a >= 0
        ]
        inner = [state.fresh(f"{name}_part") for name in names]
        state.extents.update(zip(words, extents, strict=True))
        state.extents.update((n, e) for n, (_, e, _) in zip(inner, packed.parts, strict=True))
        state.is_serial = False
        with state.frame.scope(), state.guarded(placed is not None), state.collected() as body:
            indices = self._of_words(packed, words, inner)
            self._bind(node, indices, is_grouped)
            state.n_parallel += 1
            state.iteration = self._iteration(indices)
            self._body(node, Jumps(can_break=False), True)
            state.iteration = None
        of_word = [(n, e) for n, (_, e, _) in zip(inner, packed.parts, strict=True) if e > 1]
        loops = of_word if placed is not None else [*zip(words, extents, strict=True), *of_word]
        found: tuple[ir.Stmt, ...] = tuple(body)
        for name, extent in reversed(loops):
            found = (ir.For(name, const(extent, ir.DType.i64), found, where),)
        if placed is not None:
            found = (ir.ForActive(placed.tree, placed.node, tuple(words), found, where),)
        for statement in found:
            state.emit(statement)

    def _of_words(
        self, packed: values.Packed, words: Sequence[str], inner: Sequence[str]
    ) -> list[values.Typed]:
        """The indices of the element of a word."""
        dtype = self._index_type()
        zero = const(0, dtype)
        of_axis = [ir.LoopIndex(n, dtype) for n in words]
        found = []
        for name, (axis, extent, _) in zip(inner, packed.parts, strict=True):
            word: ir.Expr = of_axis[axis] if axis >= 0 else zero
            part: ir.Expr = ir.LoopIndex(name, dtype) if extent > 1 else zero
            found.append(binary("add", binary("mul", word, const(extent, dtype)), part))
        return [values.Typed(x) for x in found]

    def _range_bounds(self, call: ast.Call) -> Bounds:
        if len(call.args) > 3:
            self._state.fail("range takes up to three numbers", call, KernelSyntaxError)
        bounds = [
            self._expr.as_index(self._expr.operators.number(x, call), call)
            for x in self._expr.values(call.args)
        ]
        start = bounds[0] if len(bounds) > 1 else const(0, ir.DType.i64)
        step = bounds[2] if len(bounds) > 2 else _ONE
        self._look_at_step(step, call)
        return start, bounds[1] if len(bounds) > 1 else bounds[0], step

    def _look_at_step(self, step: ir.Expr, call: ast.Call) -> None:
        """Rejects a step of 0: at once if the step is known, else by an assertion at run time."""
        text = f"{ZERO_STEP} in `{ast.unparse(call)}`: give one above or below 0"
        if not isinstance(step, ir.Const):
            wanted = compare("ne", step, const(0, step.dtype))
            self._state.emit(ir.Assert(wanted, text, (), self._state.frame.parsed.where(call)))
        elif not step.value:
            self._state.fail(text, call, KernelValueError)

    def _pair(self, x: values.Value, node: ast.expr) -> Bounds:
        numbers = [
            self._expr.as_index(self._expr.operators.number(n, node), node)
            for n in values.leaves(x)
        ]
        if isinstance(x, values.Typed):
            return const(0, ir.DType.i64), numbers[0], _ONE
        if len(numbers) != 2:
            self._state.fail("a bound of ks.ndrange is an extent or a pair (low, high)", node)
        return numbers[0], numbers[1], _ONE

    # --- loops of the IR

    def _nest(
        self,
        bounds: Sequence[Bounds],
        node: ast.For,
        is_grouped: bool,
    ) -> None:
        """Emits a nest with one loop for each of `bounds`; each loop counts from 0 in steps of 1.

        Without bounds the body runs once, with an empty index vector.
        """
        state = self._state
        names = self._names(node, len(bounds), is_grouped)
        jumps = escapes(node.body, self._statements.taken, targets_of(node))
        bounds = held_bounds(state, self._expr, bounds, names, node)
        is_outermost = len(state.frames) == 1 and not state.frame.loops and not state.frame.depth
        is_serial = is_outermost and (state.is_serial or self._shares_vector(node))
        state.is_serial = state.is_serial and not is_outermost
        is_left = bool(jumps & {"break", "return"})
        if is_serial or (is_left and (not is_outermost or state.frame.in_branch)):
            self._leavable(bounds, names, node, is_grouped)
            return
        with state.frame.scope():
            self._loop(list(bounds), names, [], node, is_grouped, is_outermost)

    def _shares_vector(self, node: ast.For) -> bool:
        """True if the body uses a vector made before the loop whose components are a local array."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        bound = [self._state.frame.find(name) for name in names]
        return any(
            isinstance(x, values.MatrixValue) and isinstance(x.items[0], values.LocalItem)
            for x in bound
        )

    def _refuse_known(self, node: ast.For) -> None:
        """Raises LanguageError for a loop index whose name already has a value: Python's loop would overwrite it.

        Boxes in a program are exempt: their indices shadow equal names, as Taichi's do.
        """
        for t in ast.walk(node.target):
            bound = self._state.frame.find(t.id) if isinstance(t, ast.Name) else None
            if isinstance(t, ast.Name) and bound is not None:
                what = (
                    "the index of a loop around this one"
                    if isinstance(bound, LoopVar)
                    else "already a name of the kernel"
                )
                text = f"the loop index `{t.id}` is {what}: use another name"
                self._state.fail(text, t, KernelSyntaxError)

    def _names(self, node: ast.For, n: int, is_grouped: bool) -> list[str]:
        """Returns a name for each of `n` loops: index names in the source, or numbered names of an index vector."""
        state = self._state
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        for t in targets:
            if not isinstance(t, ast.Name):
                state.fail(
                    f"`{ast.unparse(t)}` cannot be a loop index: use a name",
                    node,
                    KernelSyntaxError,
                )
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if is_grouped and len(names) == 1:
            return [f"{names[0]}_{k}" if n > 1 else names[0] for k in range(n)]  # none of no axes
        if len(names) != n:
            state.fail(
                f"`{ast.unparse(node.iter)}` has {n} indices for {len(names)} names: give one "
                f"name per index",
                node,
            )
        return names

    def _loop(
        self,
        bounds: list[Bounds],
        names: list[str],
        indices: list[values.Typed],
        node: ast.For,
        is_grouped: bool,
        is_parallel: bool,
    ) -> None:
        """Emits the loops for `bounds` around the body, from the outermost to the innermost.

        `indices`: indices of the loops of the nest that are emitted already.
        """
        state = self._state
        if not bounds:
            self._bind(node, indices, is_grouped)
            if is_parallel:
                state.n_parallel += 1
                state.iteration = self._iteration(indices)
            self._body(node, Jumps(can_break=False), is_parallel)
            state.iteration = None if is_parallel else state.iteration
            return
        start, stop, step = bounds[0]
        extent = extent_of(start, stop, step)
        loop = state.fresh(names[0])
        known = int(extent.value) if isinstance(extent, ir.Const) else None
        state.extents[loop] = known
        is_unsure = known is None or known == 0
        with state.guarded(is_unsure), state.collected() as body:
            index = self._index(ir.LoopIndex(loop, self._index_type()), start, step)
            self._loop(bounds[1:], names[1:], [*indices, index], node, is_grouped, is_parallel)
        state.emit(ir.For(loop, extent, tuple(body), state.frame.parsed.where(node)))

    def _iteration(self, indices: list[values.Typed]) -> ir.Expr:
        """Returns a number that identifies the iteration of a parallel loop nest, for random numbers.

        It is unique while all indices are below 2^20 (2^40 for a single loop).
        """
        number: ir.Expr = const(self._state.n_parallel, ir.DType.u64)
        for x in indices:
            number = binary(
                "mul", number, const(1 << 20 if len(indices) > 1 else 1 << 40, ir.DType.u64)
            )
            number = binary("add", number, cast(x.expr, ir.DType.u64))
        return number

    def _index_type(self) -> ir.DType:
        return self._state.rules.default_int

    def _index(self, counter: ir.Expr, start: ir.Expr, step: ir.Expr) -> values.Typed:
        """Returns `start + counter * step`, the index that the program sees, for a counter from 0."""
        dtype = counter.dtype
        scaled = binary("mul", counter, cast(step, dtype))
        return values.Typed(binary("add", scaled, cast(start, dtype)))

    def _bind(self, node: ast.For, indices: list[values.Typed], is_grouped: bool) -> None:
        frame = self._state.frame
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if is_grouped and len(targets) == 1:
            assert isinstance(targets[0], ast.Name)
            frame.bind(targets[0].id, LoopVar(values.MatrixValue((len(indices),), tuple(indices))))
            return
        for t, index in zip(targets, indices, strict=True):
            assert isinstance(t, ast.Name)
            frame.bind(t.id, LoopVar(index))

    def _body(self, node: ast.For | ast.While, jumps: Jumps, is_parallel: bool = False) -> None:
        """Compiles the body of one loop into the current block; `continue` in it skips the rest of the body."""
        state, frame = self._state, self._state.frame
        frame.loops.append(jumps)
        frame.depth += 1
        draws = state.draws
        if is_parallel:
            state.draws = ""
        with state.collected() as body, frame.scope():
            self._statements.run(node.body)
        if is_parallel and state.draws:
            state.emit(ir.SetLocal(state.draws, const(0, ir.DType.u64), frame.parsed.where(node)))
        state.draws = draws if is_parallel else state.draws
        frame.depth -= 1
        frame.loops.pop()
        if jumps.continued is not None:
            where = frame.parsed.where(node)
            state.emit(ir.SetLocal(jumps.continued.name, const(False, ir.DType.bool_), where))
        for statement in body:
            state.emit(statement)

    def _leavable(
        self, bounds: Sequence[Bounds], names: list[str], node: ast.For, is_grouped: bool
    ) -> None:
        """Emits a loop nest with early exits, or in serial order, as one `while` over all iterations."""
        state, where = self._state, self._state.frame.parsed.where(node)
        jumps = Jumps(can_break=True)
        counters = [state.fresh(n) for n in names]
        dtype = self._index_type()
        stops: list[ir.Expr] = []
        for (start, stop, step), name in zip(bounds, names, strict=True):
            extent = extent_of(start, stop, step)
            if not isinstance(extent, ir.Const):
                held = state.fresh(f"{name}_end")
                state.emit(ir.SetLocal(held, extent, where))
                extent = ir.Local(held, ir.DType.i64)
            stops.append(extent)
        total: ir.Expr = const(1, ir.DType.i64)
        for extent in stops:
            total = binary("mul", total, extent)
        counter = counters[0] if len(counters) == 1 else state.fresh("iteration")
        state.emit(ir.SetLocal(counter, const(0, ir.DType.i64), where))
        at: ir.Expr = ir.Local(counter, ir.DType.i64)
        with state.collected() as body, state.guarded(), state.frame.scope():
            rest, parts = at, list[ir.Expr]()
            for extent in reversed(stops):
                is_first = len(parts) == len(stops) - 1
                parts.append(rest if is_first else binary("mod", rest, extent))
                rest = rest if is_first else binary("floordiv", rest, extent)
            indices = []
            for part, (start, _, step), name in zip(reversed(parts), bounds, names, strict=True):
                held = state.fresh(name)
                index = self._index(cast(part, dtype), start, step)
                state.emit(ir.SetLocal(held, index.expr, where))
                indices.append(values.Typed(ir.Local(held, dtype)))
            self._bind(node, indices, is_grouped)
            self._body(node, jumps)
            state.emit(ir.UpdateLocal(counter, "add", const(1, ir.DType.i64), where))
        self._until_left(compare("lt", at, total), jumps, body, node)

    def _until_left(self, condition: ir.Expr, jumps: Jumps, body: list, node: ast.AST) -> None:  # type: ignore[type-arg]
        """Emits a `while` that ends if `condition` is false or an exit flag (break, return) is set."""
        state, where = self._state, self._state.frame.parsed.where(node)
        flags = [f for f in (jumps.broken, state.frame.left) if f is not None]
        if jumps.broken is not None:
            state.emit(ir.SetLocal(jumps.broken.name, const(False, ir.DType.bool_), where))
        state.emit(ir.While(binary("and", none_of(flags), condition), tuple(body), where))

    def run_while(self, node: ast.While) -> None:
        """Compiles `while condition:`. Statements that compute the condition run in each iteration."""
        state, where = self._state, self._state.frame.parsed.where(node)
        if node.orelse:
            state.fail(
                "while-else is not supported in a kernel: remove the else", node, KernelSyntaxError
            )
        jumps = Jumps(can_break=True)
        with state.guarded(), state.collected() as before:
            condition = self._expr.condition(node.test)
        with state.guarded(), state.collected() as body:
            self._body(node, jumps)
        if not before and jumps.broken is None and state.frame.left is None:
            state.emit(ir.While(condition, tuple(body), where))
            return
        if isinstance(condition, ir.Const) and condition.value:
            self._until_left(condition, jumps, body, node)
            return
        # The condition is only evaluated while the loop goes on: it may read what is out of range behind the end.
        if jumps.broken is None:
            jumps.broken = state.new_flag("ended")
        end = ir.SetLocal(jumps.broken.name, const(True, ir.DType.bool_), where)
        tested = [*before, ir.If(unary("not", condition), (end,), tuple(body), where)]
        self._until_left(const(True, ir.DType.bool_), jumps, tested, node)

    # --- loops that are written out

    def _written_out(self, node: ast.For, items: Sequence[values.Value]) -> str | None:
        """Unrolls a loop: emits the body once for each item.

        Returns "return" if an iteration surely returns from the function, else None.
        """
        state, frame = self._state, self._state.frame
        jumps = Jumps(can_break=True)
        frame.loops.append(jumps)
        with state.collected() as rounds:
            left = self._rounds(node, list(items), jumps)
        frame.loops.pop()
        if jumps.broken is not None:
            where = frame.parsed.where(node)
            state.emit(ir.SetLocal(jumps.broken.name, const(False, ir.DType.bool_), where))
        for statement in rounds:
            state.emit(statement)
        return "return" if left == "return" else None

    def _rounds(self, node: ast.For, items: list[values.Value], jumps: Jumps) -> str | None:
        state, frame = self._state, self._state.frame
        where = frame.parsed.where(node)
        for k, item in enumerate(items):
            with frame.scope(), state.collected() as body:
                self._expr.bind_static(node.target, values.loaded(item))
                left = self._statements.run(node.body)
            if jumps.continued is not None:
                state.emit(ir.SetLocal(jumps.continued.name, const(False, ir.DType.bool_), where))
            for statement in body:
                state.emit(statement)
            if left in ("break", "return"):
                return left
            flags = [f for f in (jumps.broken, frame.left) if f is not None]
            jumps_out = escapes(node.body, self._statements.taken, targets_of(node))
            may_leave = jumps_out & {"break", "return"}
            if flags and may_leave and items[k + 1 :]:
                with state.guarded(), state.collected() as rest:
                    frame.depth += 1
                    self._rounds(node, items[k + 1 :], jumps)
                    frame.depth -= 1
                state.emit(ir.If(none_of(flags), tuple(rest), (), where))
                return None
        return None
