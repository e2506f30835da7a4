"""Describe the machine and the versions that a result was measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("penstock", "pyspark", "pyarrow", "numpy", "pandas")


def describe() -> dict[str, object]:
    """Return cores, Python, package versions, and the load that others put on the machine."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cores": len(os.sched_getaffinity(0)),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
        "versions": versions,
    }
