"""What several threads make or find out at once comes to the same for all of them."""

from __future__ import annotations

import threading
from collections.abc import ValuesView
from typing import Any

import pytest

from penstock import rows
from penstock.pe.shards import FEW_KEYS, Forgetting


def test_two_threads_that_need_a_record_class_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = rows.namedtuple, threading.Barrier(2)

    def slowly(*args: Any, **options: Any) -> Any:
        both.wait(30)
        return made(*args, **options)

    monkeypatch.setattr(rows, "namedtuple", slowly)
    found: list[type] = []
    threads = [threading.Thread(target=lambda: found.append(rows.record_class(("made", "twice")))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is rows.record_class(("made", "twice"))


def test_a_worker_that_saw_nothing_forgotten_does_not_undo_what_another_one_saw() -> None:
    forgetting = Forgetting()

    class LookedAtByAnother(dict[Any, Any]):
        """States that another worker, whose partition has forgotten a key, looks at in the same moment."""

        def values(self) -> ValuesView[Any]:
            forgetting.look(dict.fromkeys(range(2 * FEW_KEYS)))
            return super().values()

    forgetting.look(LookedAtByAnother.fromkeys(range(FEW_KEYS + 1), 1))
    assert forgetting.seen
