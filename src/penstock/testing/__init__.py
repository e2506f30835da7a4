"""The public test kit: run a flow on lists, script its time, and treat an operator worse than any engine does.

`run_list` gives rows in and gets rows out. `Script` plays a flow row by row, and says what time it is. `torture` runs a
flow under every cut, restart, replay and refusal that an engine may inflict, and compares with what it means.
`assert_in_order` looks at the order of rows. `explorer` tries every order of the steps of concurrent code: it is what
Penstock tests its own protocols with.
"""

from penstock.testing.kit import Script, assert_in_order, assert_same, run_list
from penstock.testing.torture import torture

__all__ = ["Script", "assert_in_order", "assert_same", "run_list", "torture"]
__dir__ = __all__.copy
