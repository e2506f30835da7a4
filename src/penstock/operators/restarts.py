"""Prove that a co-routine may begin again from its start at every wait.

A suspended frame cannot be saved. Where state is, a co-routine that waits is dropped, and runs from its start once its
wait is satisfied. That is the same as going on if it comes to the same wait by steps that can be repeated, and needs
nothing of what it had: so what is proven here is that

- all waits are at the beginning of one loop: from its start, and from the start of `process`, nothing is popped,
  emitted, changed or looked at before them that may be different by then;
- no local variable is bound before a wait and read after it, except those that are made again, and are the same;
- neither `self` nor a global is changed.

Functions that are called are taken for functions, as everywhere. What is not proven is refused.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NoReturn

from penstock.operators.restart_names import (
    Names,
    Outside,
    Unproven,
    bound_in,
    called_in,
    is_context,
    names_bound,
    names_read,
)

HEAD, BODY = "head", "body"


def doubt(operator: Any) -> str | None:
    """Return why an operator's `process` may not begin again at its waits; None where it is proven that it may."""
    function = inspect.unwrap(operator.process).__func__
    try:
        lines, start = inspect.getsourcelines(function)
        parsed = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return "its source cannot be read, so nothing is known of it"
    try:
        if not isinstance(parsed, ast.AsyncFunctionDef) or parsed.decorator_list:
            raise Unproven(parsed, "it is decorated, so that what runs is not what is written")
        _Proof(operator, function, parsed).prove()
    except Unproven as found:
        return f"{function.__code__.co_filename}:{found.line + start - 1}: {found.text(start - 1)}"
    return None


class _Proof:
    """Go through one `process`, statement by statement."""

    def __init__(self, operator: Any, function: Any, tree: ast.AsyncFunctionDef) -> None:
        arguments = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
        if len(arguments) != 2 or tree.args.vararg or tree.args.kwarg or tree.args.kwonlyargs:
            raise Unproven(tree, "it has other parameters than (self, ctx)")
        self._tree, (me, self._ctx) = tree, arguments
        self._names = Names(tree, me, self._ctx)
        self._outside = Outside(operator, function, self._names)
        self._frozen: dict[str, str] = {}
        """What is bound before the loop alone, and what it is: a value, a container, something in the state, or opaque.
        """
        self._started: ast.AST | None = None
        """Where the state is given its first values before the loop."""
        self._wait: ast.AST | None = None
        """The last wait that was seen."""
        self._effect: tuple[ast.AST, str] | None = None
        """What came before in this round that a wait must not come after."""

    def prove(self) -> None:
        self._outside.check()
        statements = self._tree.body
        first = next(
            (i for i, each in enumerate(statements) if any(isinstance(node, ast.Await) for node in ast.walk(each))),
            len(statements),
        )
        self._prologue(statements[:first])
        rest = statements[first:]
        self._check_frozen(rest)
        if rest and isinstance(rest[0], ast.While):
            loop = rest[0]
            phase, assigned = self._expression(loop.test, HEAD, frozenset())
            self._walk(loop.body, phase, assigned)
            self._effect = (loop, "the loop") if self._effect is None else self._effect
            self._walk([*loop.orelse, *rest[1:]], BODY, frozenset())
        else:
            self._walk(rest, HEAD, frozenset())

    # Before the loop --------------------------------------------------------------------------------------------

    def _prologue(self, statements: list[ast.stmt]) -> None:
        """Learn what is bound before the loop; it is done again at every restart, so that it must be repeatable."""
        for each in statements:
            match each:
                case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Import() | ast.ImportFrom():
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._bind(name, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._bind(name, value)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
                    values
                ) and all(isinstance(name, ast.Name) for name in names):
                    for bound, made in zip(names, values, strict=True):
                        assert isinstance(bound, ast.Name)
                        self._bind(bound.id, made)
                case ast.Expr(value=value) if self._sets_default(value):
                    self._started = each
                case ast.If(
                    test=ast.Compare(left=ast.Constant() as key, ops=[ast.NotIn()], comparators=[state]),
                    body=[ast.Assign(targets=[ast.Subscript(value=target, slice=place)], value=value)],
                    orelse=[],
                ) if (
                    self._is_state(state)
                    and self._is_state(target)
                    and ast.dump(place) == ast.dump(key)
                    and self._is_fresh(value)
                ):
                    self._started = each
                case _:
                    raise Unproven(
                        each, "what is done before the loop would be done again at every wait; do it in the loop"
                    )

    def _bind(self, name: str, value: ast.expr) -> None:
        kind = self._kind(value)
        self._frozen[name] = kind if name not in self._frozen else "opaque"
        if kind == "state" and not isinstance(value, ast.Name):
            self._started = value

    def _kind(self, value: ast.expr) -> str:
        """Tell what an expression before the loop gives; refuse one that is not the same a second time."""
        match value:
            case ast.Subscript(value=base, slice=ast.Constant()) if self._is_state(base):
                return "state"
            case _ if self._is_state(value) or self._sets_default(value):
                return "state"
        for node in ast.walk(value):
            parent = self._names.parents[node]
            inputs = isinstance(parent, ast.Attribute) and parent.attr == "inputs"
            if is_context(node, self._ctx) and not inputs:
                raise Unproven(node, "what is looked at before the loop may be different by a restart; do it inside")
        return self._outside.kind(value, self._frozen)

    def _is_state(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "state" and is_context(node.value, self._ctx)

    def _sets_default(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr="setdefault", value=base), args=[ast.Constant(), value]):
                return self._is_state(base) and self._is_fresh(value)
        return False

    def _is_fresh(self, value: ast.AST) -> bool:
        """Tell whether an expression makes something of its own, or a value."""
        return all(self._outside.makes(call) for call in ast.walk(value) if isinstance(call, ast.Call)) and not any(
            is_context(node, self._ctx) or isinstance(node, ast.Await) for node in ast.walk(value)
        )

    def _check_frozen(self, rest: list[ast.stmt]) -> None:
        """See that what is bound before the loop is not changed after it."""
        bound = {name: node for each in rest for name, node in bound_in(each)}
        aliases = [name for name, kind in self._frozen.items() if kind == "state"]
        for each in rest:
            for node in names_read(each):
                kind = self._frozen.get(node.id)
                if node.id in bound or kind in (None, "value", "state"):
                    continue
                if kind == "opaque" or not self._is_harmless(node):
                    self._crossing(node, "may be changed in place")
            if self._started is not None:
                self._check_state_uses(each, "" if not aliases else aliases[0])
        self._frozen = {name: kind for name, kind in self._frozen.items() if name not in bound}

    def _is_harmless(self, node: ast.AST) -> bool:
        parent = self._names.parents[node]
        if isinstance(parent, ast.Call) and node in parent.args and _is_wait_call(parent, self._ctx):
            return True
        return self._names.is_harmless(node)

    def _check_state_uses(self, statement: ast.stmt, alias: str) -> None:
        """See that what the state was given before the loop stays there, and is not replaced under another name."""
        for node in ast.walk(statement):
            if not is_context(node, self._ctx):
                continue
            parent = self._names.parents[node]
            if not isinstance(parent, ast.Attribute):
                raise Unproven(node, "ctx is given away, so that what the state was given before the loop may be gone")
            if parent.attr != "state":
                continue
            if alias:
                raise Unproven(
                    parent, f"{alias!r} is something in ctx.state, which is used under both names; use one of them"
                )
            use = self._names.parents[parent]
            stays = isinstance(use, ast.Subscript) and not isinstance(use.ctx, ast.Del)
            stays |= isinstance(use, ast.Attribute) and use.attr in ("get", "setdefault")
            stays |= isinstance(use, ast.Compare)
            if not stays:
                raise Unproven(parent, "what ctx.state was given before the loop may be gone by a restart")

    # In the loop ------------------------------------------------------------------------------------------------

    def _walk(self, statements: list[ast.stmt], phase: str | None, assigned: frozenset[str]) -> _After:
        """Take statements in their order; return the phase after them (None: they do not come to an end) and names."""
        for each in statements:
            if phase is None:
                break
            phase, assigned = self._statement(each, phase, assigned)
        return phase, assigned

    def _statement(self, each: ast.stmt, phase: str | None, assigned: frozenset[str]) -> _After:
        match each:
            case ast.If():
                phase, assigned = self._expression(each.test, phase, assigned)
                effect = self._effect
                ways = []
                for branch in (each.body, each.orelse):
                    self._effect = effect
                    ways.append((*self._walk(branch, phase, assigned), self._effect))
                return self._joined(ways)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() | ast.Return() | ast.Delete():
                return self._simple(each, phase, assigned)
            case ast.Continue() | ast.Break() | ast.Raise():
                self._read(each, assigned)
                return None, assigned
            case ast.Pass() | ast.Import() | ast.ImportFrom():
                return phase, assigned | names_bound(each)
        for wait in _waits(each, self._ctx):
            raise Unproven(wait, f"the wait is inside a {_called(each)}; let it begin the one loop of process()")
        self._effect = self._effect or (each, f"a {_called(each)}")
        return BODY, self._compound(each, assigned)

    def _joined(self, ways: list[tuple[str | None, frozenset[str], Any]]) -> _After:
        """Join the ways through an if: what is after it may have come by either."""
        through = [way for way in ways if way[0] is not None]
        if not through:
            return None, frozenset()
        self._effect = next((way[2] for way in through if way[2] is not None), None)
        phase = BODY if any(way[0] == BODY for way in through) else HEAD
        return phase, frozenset.intersection(*(way[1] for way in through))

    def _simple(self, each: ast.stmt, phase: str | None, assigned: frozenset[str]) -> _After:
        """Take a statement without others inside."""
        value: ast.expr | None = getattr(each, "value", None)
        plain = isinstance(each, (ast.Assign, ast.AnnAssign)) and all(
            isinstance(target, ast.Name) for target in getattr(each, "targets", [getattr(each, "target", None)])
        )
        after = assigned
        if value is not None:
            phase, after = self._expression(value, phase, assigned)
        if isinstance(each, ast.Expr) or plain:
            pass
        elif not isinstance(each, ast.Return):
            self._read(each, after)
            self._effect = self._effect or (each, "a change")
            phase = BODY
        bound = names_bound(each)
        if isinstance(each, ast.Delete):
            return phase, after - bound
        return (None if isinstance(each, ast.Return) else phase), after | bound

    def _compound(self, each: ast.stmt, assigned: frozenset[str]) -> frozenset[str]:
        """Take a loop, a try, a with or a match that has no wait in it; return what is bound for sure after it."""
        match each:
            case ast.For():
                self._read(each.iter, assigned)
                inside = assigned | names_bound(each.target)
                self._walk(each.body, BODY, inside)
                self._walk(each.orelse, BODY, assigned)
            case ast.While():
                _, inside = self._expression(each.test, BODY, assigned)
                self._walk(each.body, BODY, inside)
                self._walk(each.orelse, BODY, assigned)
            case ast.With():
                for item in each.items:
                    self._read(item.context_expr, assigned)
                    if item.optional_vars is not None:
                        assigned |= names_bound(item.optional_vars)
                return self._walk(each.body, BODY, assigned)[1]
            case ast.Try():
                _, inside = self._walk(each.body, BODY, assigned)
                for handler in each.handlers:
                    self._walk(handler.body, BODY, assigned | ({handler.name} if handler.name else set()))
                self._walk(each.orelse, BODY, inside)
                _, final = self._walk(each.finalbody, BODY, assigned)
                return final | (inside if not each.handlers else frozenset())
            case ast.Match():
                self._read(each.subject, assigned)
                for case in each.cases:
                    inside = assigned | names_bound(case.pattern)
                    if case.guard is not None:
                        self._read(case.guard, inside)
                    self._walk(case.body, BODY, inside)
            case ast.FunctionDef():
                self._read(each, assigned | {each.name})
                return assigned | {each.name}
            case _:
                self._read(each, assigned)
        return assigned

    def _expression(self, value: ast.expr, phase: str | None, assigned: frozenset[str]) -> _After:
        """Take an expression; tell whether a wait may still come after it."""
        self._read(value, assigned)
        assigned |= self._names.surely_bound(value)
        waits = list(_waits(value, self._ctx))
        if waits and phase == BODY:
            self._too_late(waits[0], assigned)
        odd = self._not_repeatable(value)
        if waits and (odd is not None or len(waits) > 1):
            self._effect = self._effect or (odd or waits[0], "what may be different at a restart")
            self._too_late(waits[-1], assigned)
        if waits:
            self._wait = waits[0]
            self._effect = (waits[0], "another wait")
            return BODY, assigned
        if phase == HEAD and odd is not None:
            self._effect = (odd, "what may be different at a restart, or would be done again")
            return BODY, assigned
        return phase, assigned

    def _too_late(self, wait: ast.AST, assigned: frozenset[str]) -> NoReturn:
        """Refuse a wait that does not begin the loop."""
        assert self._effect is not None
        self._wait = wait
        for node in names_read(ast.Module(self._tree.body, [])):
            if node.id in assigned and node.id not in self._frozen and _place(node) > _place(wait):
                self._crossing(node, "would be gone")
        why = f"the wait on line {{0}} comes after {self._effect[1]}, on line {{1}}, and so does not begin the loop"
        raise Unproven(wait, why, wait, self._effect[0])

    def _not_repeatable(self, value: ast.expr) -> ast.AST | None:
        """Return what in an expression may be different a second time, or changes something."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                if _is_wait_call(node, self._ctx) or self._is_state_read(node) or self._outside.is_builtin(node):
                    continue
                return node
            if is_context(node, self._ctx):
                parent = self._names.parents[node]
                known = isinstance(parent, ast.Attribute) and parent.attr in ("state", "inputs")
                if not known and not _is_wait_call(self._names.parents.get(parent), self._ctx):
                    return node
            if isinstance(node, ast.Lambda) or (
                isinstance(node, ast.Await) and not _is_wait_call(node.value, self._ctx)
            ):
                return node
        return None

    def _is_state_read(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and call.func.attr == "get" and self._is_state(call.func.value)

    def _read(self, node: ast.AST, assigned: frozenset[str]) -> None:
        """See that all local variables that are read here were bound in this round, or before the loop alone."""
        known = self._names.surely_bound(node) if isinstance(node, ast.expr) else frozenset()
        inside = names_bound(node) if not isinstance(node, (ast.expr, ast.stmt)) else ()
        for name in names_read(node):
            if name.id in self._names.local and not (
                name.id in self._frozen or name.id in assigned or name.id in known or name.id in inside
            ):
                self._crossing(name, "would be gone")

    def _crossing(self, read: ast.Name, why: str) -> NoReturn:
        bound = self._names.first[read.id]
        wait = self._wait or next(iter(_waits(self._tree, self._ctx)), read)
        raise Unproven(
            read,
            f"the local variable {read.id!r}, bound on line {{0}}, is read on line {{1}} after the wait on line {{2}}, "
            f"where it {why}; keep it in ctx.state",
            bound,
            read,
            wait,
        )


_After = tuple[str | None, frozenset[str]]


def _waits(node: ast.AST, ctx: str) -> Iterator[ast.Await]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Await) and _is_wait_call(each.value, ctx))


def _is_wait_call(node: ast.AST | None, ctx: str) -> bool:
    return called_in(node, ctx) in ("wait_for_all", "wait_for_any")


def _called(statement: ast.stmt) -> str:
    return {"For": "for loop", "While": "loop of its own", "Try": "try", "With": "with"}.get(
        type(statement).__name__, type(statement).__name__.lower()
    )


def _place(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]
