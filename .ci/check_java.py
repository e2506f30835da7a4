"""Check Java with what Penstock itself checks, before its dependencies are there."""

import sys
import types
from pathlib import Path

# A stand-in for the package: its front door would import PyArrow, which may not be installed yet.
package = types.ModuleType("penstock")
package.__path__ = [str(Path(__file__).resolve().parents[1] / "src" / "penstock")]
sys.modules["penstock"] = package
sys.dont_write_bytecode = True

from penstock.errors import PenstockError  # noqa: E402
from penstock.spark.session import check_java  # noqa: E402

try:
    check_java()
except PenstockError as error:
    sys.exit(str(error))
