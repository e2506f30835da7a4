"""Operators that need to wait for rows of several ports; each is a `penstock.Operator`, run by `penstock.operate`."""

from penstock.operators.library.barrier import Barrier
from penstock.operators.library.cycle import feedback
from penstock.operators.library.gate import Gate
from penstock.operators.library.join import Join
from penstock.operators.library.merge import Merge
from penstock.operators.library.switch import Switch
from penstock.operators.library.throttle import Throttle
from penstock.operators.library.zip import Zip

__all__ = ["Barrier", "Gate", "Join", "Merge", "Switch", "Throttle", "Zip", "feedback"]
__dir__ = __all__.copy
