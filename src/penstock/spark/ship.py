"""Bring the flow, Penstock itself and the user's modules to the workers, so that nothing is installed there by hand."""

from __future__ import annotations

import dataclasses
import marshal
import os
import pickletools
import sys
import sysconfig
import tempfile
import threading
import uuid
import zipfile
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import FlowError
from penstock.operators.base import Sink, Source
from penstock.operators.lookup import Lookup
from penstock.plan.graph import Node
from penstock.plan.plan import Plan

_PACKAGE = Path(__file__).resolve().parents[1]
_adding = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Bundle:
    """What workers get: the plan without what only the driver can use, and the classes of the main program."""

    plan: Plan
    main_classes: dict[str, type]
    roots: dict[str, str]
    """For each zip of user modules, the directory that its files came from: errors name the user's own files."""


def pack_plan(plan: Plan, roots: dict[str, str]) -> bytes:
    """Pickle a plan for the workers; name the operator whose function cannot be."""
    from pyspark import cloudpickle

    stripped = {name: _stripped(node) for name, node in plan.nodes.items()}
    for name, node in stripped.items():
        try:
            cloudpickle.dumps(node.operator)
        except Exception as error:
            raise FlowError(
                f"operator {name!r}: its function cannot be pickled, so it cannot be sent to the workers: {error}; "
                f"it, or "
                f"something it refers to, holds a connection, a lock, a file or the like: make that inside the function"
            ) from None
    main = sys.modules.get("__main__")
    classes = (
        {key: value for key, value in vars(main).items() if isinstance(value, type) and value.__module__ == "__main__"}
        if main
        else {}
    )
    bundle = Bundle(Plan(plan.name, plan.graph.replaced(stripped)), {}, roots)
    try:
        return bytes(cloudpickle.dumps(dataclasses.replace(bundle, main_classes=classes)))
    except Exception:
        # A class of the main program that the flow does not use may be beyond pickling.
        return bytes(cloudpickle.dumps(bundle))


def unpack_plan(data: bytes) -> Bundle:
    """Unpickle a bundle in a worker, and let the classes of the main program be found by name there."""
    from pyspark import cloudpickle

    bundle: Bundle = cloudpickle.loads(data)
    main = sys.modules["__main__"]
    for name, cls in bundle.main_classes.items():
        if not hasattr(main, name):
            setattr(main, name, cls)
    return bundle


def _stripped(node: Node) -> Node:
    operator = node.operator
    if isinstance(operator, Source):
        operator = dataclasses.replace(operator, reader=operator.reader.for_workers())
    elif isinstance(operator, Sink):
        operator = dataclasses.replace(operator, writer=operator.writer.for_workers())
    elif isinstance(operator, Lookup):
        operator = dataclasses.replace(operator, table=None, content=None)
    return dataclasses.replace(node, operator=operator)


def ship(context: Any, plan: Plan) -> bytes:
    """Send Penstock and the user's modules to the workers of a Spark context; return the packed plan."""
    packed = pack_plan(plan, {})
    _add_once(context, _zip_penstock())
    roots = {}
    for root, modules in _user_modules(packed).items():
        path = _zip_modules(modules)
        _add_once(context, path)
        roots[os.path.basename(path)] = root
    return pack_plan(plan, roots) if roots else packed


def _add_once(context: Any, path: str) -> None:
    with _adding:
        shipped = context.__dict__.setdefault("_penstock_shipped", set())
        if path not in shipped:
            context.addPyFile(path)
            # PySpark puts the zip first on the driver's own path too; there the originals must win.
            sys.path[:] = [entry for entry in sys.path if os.path.basename(entry) != os.path.basename(path)]
            shipped.add(path)


_zipped: dict[tuple[Any, ...], str] = {}
"""Where those are that this process has zipped, by what is in them: they are not read again for each run."""


def _zip_penstock() -> str:
    """Zip Penstock itself, once for a process: workers run what the driver does, whatever is installed meanwhile."""
    return _zip(("penstock",), _own_files)


def _zip_modules(entries: dict[str, Path]) -> str:
    """Zip files of the user's under their names; those that have changed are zipped again."""
    stats = [(name, path, path.stat()) for name, path in sorted(entries.items())]
    known = ("modules", *((name, path, stat.st_mtime_ns, stat.st_size) for name, path, stat in stats))
    return _zip(known, lambda: [(name, path.read_bytes()) for name, path, _ in stats])


def _own_files() -> list[tuple[str, bytes]]:
    files = (file for file in sorted(_PACKAGE.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
    return [(file.relative_to(_PACKAGE.parent).as_posix(), file.read_bytes()) for file in files]


def _compiled(name: str, source: bytes) -> bytes:
    """Return the bytecode of a module of Penstock's as a file that is taken as it is.

    To compile what it imports takes a worker longer than all else of its start. One of another Python takes the source.
    """
    module = name.removesuffix(".py").replace("/", ".")
    code = SourceFileLoader(module, str(_PACKAGE.parent / name)).get_code(module)  # mostly from Python's own cache
    unchecked = (1).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(source) + marshal.dumps(code)


def _zip(known: tuple[Any, ...], read: Callable[[], list[tuple[str, bytes]]]) -> str:
    """Return where a zip is, and make it if it is not there."""
    target = _zipped.get(known)
    if target is None or not os.path.exists(target):
        target = _zipped[known] = _write_zip(known[0], read())
    return target


def _write_zip(kind: str, files: list[tuple[str, bytes]]) -> str:
    """Zip files; the same content always has the same name. Penstock's own are compiled."""
    own = kind == "penstock"
    compiler = MAGIC_NUMBER + str(_PACKAGE).encode() if own else b""
    digest = blake2b(compiler + b"".join(name.encode() + data for name, data in files), digest_size=8).hexdigest()
    directory = Path(tempfile.gettempdir()) / f"penstock-{os.getuid() if hasattr(os, 'getuid') else 0}"
    target = directory / f"{kind}-{digest}.zip"
    if not target.exists():
        directory.mkdir(parents=True, exist_ok=True)
        # Runs of this process, and of others, may do the same just now.
        temporary = target.with_suffix(f".{uuid.uuid4().hex}.tmp")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files:
                archive.writestr(zipfile.ZipInfo(name), data)
                if own and name.endswith(".py"):
                    archive.writestr(zipfile.ZipInfo(f"{name}c"), _compiled(name, data))
        temporary.replace(target)
    return str(target)


def _user_modules(packed: bytes) -> dict[str, dict[str, Path]]:
    """Find the user's modules that a pickled plan refers to, and those loaded from the same directories."""
    names = {argument for _, argument, _ in pickletools.genops(packed) if isinstance(argument, str)}
    wanted = {root for name in names if (root := _user_root(sys.modules.get(name))) is not None}
    found: dict[str, dict[str, Path]] = {root: {} for root in wanted}
    for module in list(sys.modules.values()):
        root = _user_root(module)
        if root in found:
            file = Path(module.__file__ or "").resolve()
            found[root][file.relative_to(root).as_posix()] = file
            # A package needs the __init__ of each package around it, loaded under this name or not.
            for parent in file.relative_to(root).parents:
                init = Path(root) / parent / "__init__.py"
                if parent.parts and init.exists():
                    found[root][(parent / "__init__.py").as_posix()] = init
    return found


def _user_root(module: ModuleType | None) -> str | None:
    """Return the directory on the path that a module of the user's was found in; None for all other modules."""
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "")
    if module is None or not file or not file.endswith(".py") or name == "__main__":
        return None
    return _root_of(file, name)


@cache  # a thousand modules are loaded, and asking the disk for each of them takes longer than an epoch
def _root_of(file: str, name: str) -> str | None:
    path = Path(file).resolve()
    if any(path.is_relative_to(place) for place in _installed()) or "site-packages" in path.parts:
        return None
    depth = len(name.split(".")) - (path.name != "__init__.py")
    return str(path.parents[depth]) if depth < len(path.parents) else None


@cache
def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    places = [paths["stdlib"], paths["purelib"], paths["platlib"], sys.prefix, str(_PACKAGE)]
    return [Path(place).resolve() for place in places]
