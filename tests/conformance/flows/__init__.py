"""Named flows that every engine must run as the sequential engine does: one for each thing that a flow can be.

A case is a function that adds operators and sinks to the sources that it asks for, with the rows of these sources and
the way to cut them in epochs. What is written out as `expects` was worked out by hand, so that the reference engine
is held to something too.
"""

import importlib
import pkgutil

from .cases import CASES, Case

__all__ = ["CASES", "Case"]

for _, name, _ in pkgutil.iter_modules(__path__):  # one file a family; none can be forgotten here
    importlib.import_module(f"{__name__}.{name}")
