"""What the tests that kill drivers share."""

from tests.chaos.conftest import count_kills

__all__ = ["count_kills"]
