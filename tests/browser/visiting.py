"""Visit a page as a person does, and note everything that a browser complains about."""

from __future__ import annotations

from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MISSING = "NO CHROMIUM: THE PAGE WAS NOT TESTED IN A BROWSER (apt-get install chromium)"
PATIENCE = 300_000
"""Milliseconds: machines are slow and shared."""


class Visit:
    """Pages that are open, what their consoles said, and where they asked for anything."""

    def __init__(self, context: Any) -> None:
        self._context, self._pages = context, []
        self.problems: list[str] = []
        self.requests: list[str] = []

    def open(self, address: str, scheme: str = "light") -> Any:
        """Open a page, and wait until it is drawn."""
        page = self._context.new_page()
        page.set_default_timeout(PATIENCE)
        page.emulate_media(color_scheme=scheme)
        page.on("console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        self._pages.append(page)
        return page

    def close(self) -> None:
        """Close all pages."""
        while self._pages:
            self._pages.pop().close()


def wait_for_text(page: Any, selector: str, pattern: str) -> str:
    """Wait until an element's text matches a regular expression; return it."""
    page.wait_for_function(
        "([selector, pattern]) => new RegExp(pattern).test(document.querySelector(selector)?.textContent ?? '')",
        arg=[selector, pattern],
    )
    return str(page.locator(selector).first.text_content())


def operator(page: Any, name: str) -> Any:
    """Find an operator of the graph."""
    return page.locator(f'.node[data-operator="{name}"]')
