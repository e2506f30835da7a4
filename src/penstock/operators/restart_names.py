"""What the names in a co-routine's source stand for: locals, `self`, globals, and which of them may change."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import re
import textwrap
import types
import uuid
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

HARMLESS_CALLS = frozenset(
    function.__name__
    for function in (
        abs, all, any, bool, dict, enumerate, float, frozenset, int, isinstance, len, list, max, min, range, repr,
        reversed, round, set, sorted, str, sum, tuple, zip,
    )
)  # fmt: skip
"""Builtins that change nothing that they are given."""
HARMLESS_METHODS = frozenset({"get", "items", "keys", "values", "index", "count", "copy"})
"""Of lists, tuples, sets and dicts."""
_VALUES = (
    type(None), bool, int, float, complex, str, bytes, range, type, types.ModuleType, types.FunctionType,
    types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.MethodDescriptorType, functools.partial,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction, enum.Enum,
    PurePath, re.Pattern, uuid.UUID, type(Ellipsis),
)  # fmt: skip
_SCOPES = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Unproven(Exception):
    """Something that may make a difference at a restart; `{0}` in the message is the line of the first node given."""

    def __init__(self, node: ast.AST, message: str, *nodes: ast.AST) -> None:
        super().__init__(message)
        self._message, self._lines = message, [each.lineno for each in nodes]  # type: ignore[attr-defined]
        self.line: int = node.lineno  # type: ignore[attr-defined]

    def text(self, offset: int) -> str:
        return self._message.format(*(line + offset for line in self._lines)) if self._lines else self._message


def is_context(node: ast.AST, ctx: str) -> bool:
    return isinstance(node, ast.Name) and node.id == ctx


def called_in(node: ast.AST | None, ctx: str) -> str | None:
    """Return which method of the context a node calls, if it does."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_context(node.func.value, ctx):
        return node.func.attr
    return None


def names_read(node: ast.AST, hidden: frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """Yield the names that are read, except those that belong to a lambda, a function or a comprehension inside."""
    if isinstance(node, ast.Name):
        if node.id not in hidden and isinstance(node.ctx, (ast.Load, ast.Del)):
            yield node
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id not in hidden:
        yield node.target
    if isinstance(node, _SCOPES):
        hidden |= frozenset(_own(node))
    for child in ast.iter_child_nodes(node):
        yield from names_read(child, hidden)


def _own(scope: ast.AST) -> Iterator[str]:
    """Yield the names that a lambda, a function or a comprehension binds for itself."""
    if isinstance(scope, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _parameters(scope.args)
        if not isinstance(scope, ast.Lambda):
            yield from (name for each in scope.body for name, _ in bound_in(each))
    else:
        for generator in scope.generators:  # type: ignore[attr-defined]
            yield from (node.id for node in ast.walk(generator.target) if isinstance(node, ast.Name))


def bound_in(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a node binds in the function around it, with where it does."""
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id, node
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node
            return
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, node
        case ast.MatchMapping(rest=str(name)):
            yield name, node
        case ast.alias():
            yield (node.asname or node.name.split(".")[0]), node
        case ast.Lambda():
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from ((each.target.id, each) for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
            return
    for child in ast.iter_child_nodes(node):
        yield from bound_in(child)


def names_bound(node: ast.AST) -> frozenset[str]:
    return frozenset(name for name, _ in bound_in(node))


def _parameters(of: ast.arguments) -> Iterator[str]:
    every = (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg)
    return (each.arg for each in every if each is not None)


class Names:
    """The local variables of a function, and where each node stands."""

    def __init__(self, tree: ast.AsyncFunctionDef | ast.FunctionDef, me: str, ctx: str | None) -> None:
        self.me, self.ctx, self.tree = me, ctx, tree
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.first: dict[str, ast.AST] = {}
        """Where each local variable is bound first."""
        for name, node in (binding for each in tree.body for binding in bound_in(each)):
            self.first.setdefault(name, node)
        self.local = frozenset(self.first)
        self.arguments = frozenset(_parameters(tree.args))

    def surely_bound(self, node: ast.AST) -> frozenset[str]:
        """Return the names that an expression binds whatever its values are."""
        names: set[str] = set()
        match node:
            case ast.NamedExpr():
                names.add(node.target.id)
                names |= self.surely_bound(node.value)
            case ast.BoolOp():
                names |= self.surely_bound(node.values[0])
            case ast.IfExp():
                names |= self.surely_bound(node.test)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass
            case _:
                for child in ast.iter_child_nodes(node):
                    names |= self.surely_bound(child)
        return frozenset(names)

    def is_harmless(self, node: ast.AST) -> bool:
        """Tell whether a container is used here in a way that neither changes it nor gives it away."""
        parent = self.parents[node]
        match parent:
            case ast.Subscript(value=value, ctx=ast.Load()):
                return value is node
            case ast.Compare():
                return True
            case ast.Call(func=ast.Name(id=name)):
                return name in HARMLESS_CALLS and node in parent.args
            case ast.Attribute(attr=attr):
                call = self.parents[parent]
                return attr in HARMLESS_METHODS and isinstance(call, ast.Call) and call.func is parent
            case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
                return iterated is node
        return isinstance(parent, (ast.If, ast.IfExp, ast.While, ast.UnaryOp))


class Outside:
    """What a function uses of `self` and of globals: it may change neither."""

    def __init__(self, operator: Any, function: Any, names: Names, seen: frozenset[Any] = frozenset()) -> None:
        self._operator, self._function, self._names = operator, function, names
        self._seen = seen | {function}
        cells = function.__closure__ or ()
        self._free: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            try:
                self._free[name] = cell.cell_contents
            except ValueError:  # not bound yet
                continue

    def check(self) -> None:
        """Refuse what may change something that is not saved."""
        tree = self._names.tree
        for node in ast.walk(tree):
            match node:
                case ast.Global() | ast.Nonlocal():
                    raise Unproven(node, f"it changes {', '.join(node.names)}, which is not its own; use ctx.state")
                case ast.Attribute(ctx=ast.Store() | ast.Del()):
                    self._check_store(node)
                case ast.AsyncFor() | ast.AsyncWith() | ast.Yield() | ast.YieldFrom() | ast.ClassDef():
                    raise Unproven(
                        node, f"it has {type(node).__name__} inside; write one loop of waits, pops and emits"
                    )
                case ast.AsyncFunctionDef() if node is not tree:
                    raise Unproven(node, "it has a co-routine inside; wait in process() itself")
                case ast.Await():
                    if called_in(node.value, self._names.ctx or "") not in ("wait_for_all", "wait_for_any", "emit"):
                        raise Unproven(node, "it awaits something else than ctx.wait_for_all, wait_for_any and emit")
                case ast.Subscript(ctx=ast.Store() | ast.Del()):
                    self._check_root(node)
        for name in names_read(ast.Module(tree.body, [])):
            if name.id == self._names.me:
                self._check_self(name)
            elif name.id not in self._names.local and name.id not in self._names.arguments:
                self._check_global(name)
        for bound in self._names.local & {self._names.me, self._names.ctx}:
            raise Unproven(self._names.first[str(bound)], f"it gives {bound!r} another value")

    def _check_store(self, node: ast.Attribute) -> None:
        base = node.value
        if isinstance(base, ast.Name) and base.id == self._names.me:
            raise Unproven(node, f"self.{node.attr} is changed, and is not saved; keep it in ctx.state")
        if not (node.attr == "state" and self._names.ctx and is_context(base, self._names.ctx)):
            raise Unproven(node, f"the attribute {node.attr!r} of an object is changed; keep what changes in ctx.state")

    def _check_root(self, node: ast.AST) -> None:
        root = node
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        names = self._names
        if isinstance(root, ast.Name) and (
            root.id == names.me or not (root.id in names.local or root.id in names.arguments)
        ):
            raise Unproven(node, f"{root.id} is changed in place, and is not saved; keep it in ctx.state")

    def _check_self(self, name: ast.Name) -> None:
        attribute = self._names.parents[name]
        if not isinstance(attribute, ast.Attribute):
            raise Unproven(name, "self is given away, so that it may be changed")
        missing = object()
        value = vars(self._operator).get(attribute.attr, missing) if hasattr(self._operator, "__dict__") else missing
        if value is missing:
            value = inspect.getattr_static(type(self._operator), attribute.attr, missing)
            if value is missing:
                return  # it fails when it runs, and says so better
            if isinstance(value, (types.FunctionType, staticmethod, classmethod)):
                self._check_method(attribute, value)
                return
        self._check_use(attribute, value, f"self.{attribute.attr}")

    def _check_method(self, node: ast.Attribute, value: Any) -> None:
        call = self._names.parents[node]
        if not (isinstance(call, ast.Call) and call.func is node):
            raise Unproven(node, f"self.{node.attr} is given away, which knows self")
        if not isinstance(value, types.FunctionType) or value in self._seen:
            return
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
            assert isinstance(tree, ast.FunctionDef)
            assert not tree.decorator_list
            me = (*tree.args.posonlyargs, *tree.args.args)[0].arg
            Outside(self._operator, value, Names(tree, me, None), self._seen).check()
        except Unproven as found:
            raise Unproven(node, f"self.{node.attr}(): {found.text(0)}") from None
        except (OSError, TypeError, SyntaxError, IndexError, AssertionError):
            raise Unproven(node, f"self.{node.attr}() cannot be looked into") from None

    def _check_global(self, name: ast.Name) -> None:
        value = self._resolved(name)
        if value is _UNKNOWN:
            return  # it fails when it runs
        if any(value is each for each in _REACHING):
            raise Unproven(name, f"{name.id}() may reach what is not saved; keep it in ctx.state")
        node: ast.AST = name
        # Through modules and classes to what is meant.
        while isinstance(value, (types.ModuleType, types.FunctionType, type)) and isinstance(
            self._names.parents[node], ast.Attribute
        ):
            node = self._names.parents[node]
            assert isinstance(node, ast.Attribute)
            value = getattr(value, node.attr, None)
        self._check_use(node, value, ast.unparse(node))

    def _check_use(self, node: ast.AST, value: Any, text: str) -> None:
        if is_value(value):
            return
        call = self._names.parents[node]
        if callable(value) and isinstance(call, ast.Call) and call.func is node:
            return
        if is_container(value) and self._names.is_harmless(node):
            return
        raise Unproven(
            node, f"{text} is an object that may be changed in place, and is not saved; keep it in ctx.state"
        )

    def _resolved(self, name: ast.Name) -> Any:
        for where in (self._free, self._function.__globals__, vars(builtins)):
            if name.id in where:
                return where[name.id]
        return _UNKNOWN

    # What an expression before the loop gives -------------------------------------------------------------------

    def kind(self, node: ast.AST, frozen: Mapping[str, str], inner: frozenset[str] = frozenset()) -> str:
        """Tell whether an expression gives a value, a container of values, or something opaque."""

        def of(child: ast.AST) -> str:
            return self.kind(child, frozen, inner)

        def values(*children: ast.AST | None) -> bool:
            return all(child is None or of(child) == "value" for child in children)

        match node:
            case ast.Constant() | ast.JoinedStr():
                return "value"
            case ast.Name() if node.id in inner:
                return "value"
            case ast.Name() if node.id in frozen:
                return frozen[node.id]
            case ast.Name() if node.id in self._names.local:
                return "opaque"
            case ast.Name():
                return _kind_of(self._resolved(node))
            case ast.Attribute(value=ast.Name(id=name)) if name == self._names.me:
                return _kind_of(getattr(self._operator, node.attr, None))
            case ast.Attribute(attr="inputs", value=base) if is_context(base, self._names.ctx or ""):
                return "value"
            case ast.UnaryOp() | ast.BinOp() | ast.Compare() | ast.BoolOp() | ast.IfExp() | ast.Tuple():
                parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
                return "value" if values(*parts) else "opaque"
            case ast.Lambda():
                own = inner | frozenset(_own(node))
                read = [each for each in names_read(node.body) if each.id in self._names.local and each.id not in own]
                return "value" if all(frozen.get(each.id) == "value" for each in read) else "opaque"
            case ast.List() | ast.Set():
                return "container" if values(*node.elts) else "opaque"
            case ast.Dict():
                return "container" if values(*node.keys, *node.values) else "opaque"
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                if not all(of(each.iter) in ("value", "container") for each in node.generators):
                    return "opaque"
                own = inner | frozenset(_own(node))
                parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                return "container" if all(self.kind(p, frozen, own) == "value" for p in parts) else "opaque"
            case ast.Call() if self.is_builtin(node):
                if not all(of(each) in ("value", "container") for each in node.args) or node.keywords:
                    return "opaque"
                name = node.func.id if isinstance(node.func, ast.Name) else "dict"
                return "container" if name in ("dict", "list", "set", "sorted") else "value"
        return "opaque"

    def is_builtin(self, call: ast.Call) -> bool:
        """Tell whether a call is of a builtin that changes nothing, and not of something else of its name."""
        match call.func:
            case ast.Name(id=name):
                return name in HARMLESS_CALLS and self._resolved(call.func) is vars(builtins)[name]
            case ast.Attribute(value=ast.Name(id="dict") as base, attr="fromkeys"):
                return self._resolved(base) is dict
        return False

    def makes(self, call: ast.Call) -> bool:
        """Tell whether a call makes a new object: of a class, or by a builtin."""
        return self.is_builtin(call) or (
            isinstance(call.func, ast.Name) and isinstance(self._resolved(call.func), type)
        )


_UNKNOWN = object()
_REACHING = (eval, exec, globals, locals, vars, setattr, delattr, __import__)


def _kind_of(value: Any) -> str:
    return "value" if is_value(value) else "container" if is_container(value) else "opaque"


def is_value(value: Any) -> bool:
    """Tell whether an object can never be changed; functions are taken for functions."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(is_value, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        frozen: bool = type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
        return frozen and all(is_value(getattr(value, each.name)) for each in dataclasses.fields(value))
    return isinstance(value, _VALUES)


def is_container(value: Any) -> bool:
    """Tell whether an object is a list, a set or a dict of nothing but values."""
    if type(value) is dict:
        return all(is_value(key) and is_value(each) for key, each in value.items())
    return type(value) in (list, set) and all(map(is_value, value))
