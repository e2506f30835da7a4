"""Check Java with what Penstock itself checks, before its dependencies are there."""

import sys
import types
from pathlib import Path

# Stand-ins for the packages: their front doors would import PyArrow, which may not be installed yet.
SOURCE = Path(__file__).resolve().parents[1] / "src"
for name in ("penstock", "penstock.spark"):
    package = types.ModuleType(name)
    package.__path__ = [str(SOURCE.joinpath(*name.split(".")))]
    sys.modules[name] = package
sys.dont_write_bytecode = True

from penstock.errors import PenstockError  # noqa: E402
from penstock.spark.java import check_java  # noqa: E402

try:
    check_java()
except PenstockError as error:
    sys.exit(str(error))
