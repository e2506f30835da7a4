"""The reference says what the docstrings say today, and shows each public name at work; `test_blocks.py` runs it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_that_of_the_docstrings():
    spec = importlib.util.spec_from_file_location("reference_page", ROOT / "docs" / "reference_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = module.examples()
    wanted = {
        f"{home}.{name}" for title, _, home, given in module.SECTIONS for name in module.names_of(home, title, given)
    }
    assert sorted(wanted - known.keys()) == [], "give these an example in docs/reference_examples.py"
    assert (ROOT / "docs" / "reference.md").read_text() == module.page(), "run python docs/reference_page.py"
