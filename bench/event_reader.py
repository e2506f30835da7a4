"""Read a page's events as a browser does, in a process of its own: write when each sample came.

python bench/event_reader.py HOST:PORT
"""

import http.client
import sys
import time


def main(host: str) -> None:
    """Read until the page ends."""
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("GET", "/api/events")
        answer = connection.getresponse()
        while line := answer.readline():
            if line.startswith(b"data: "):
                print(time.monotonic(), flush=True)
    except (OSError, http.client.HTTPException):
        pass  # the flow has ended, and its page with it


if __name__ == "__main__":
    main(sys.argv[1])
