"""Java, which Spark needs: checked before anything is installed, too, so nothing but the standard library is used."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from penstock.errors import PenstockError

JAVA_HELP = (
    "Penstock needs Java 17 or later for Spark, and found {found}.\n"
    "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless\n"
    "  Fedora:          sudo dnf install java-17-openjdk-headless\n"
    "  macOS:           brew install openjdk@17\n"
    "  conda:           conda install -c conda-forge openjdk=17\n"
    "If it is installed, set JAVA_HOME to its directory. Flows also run without Java: on=ps.Threads()."
)


def check_java() -> str:
    """Return the version of Java that Spark will use; say how to get it where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        raise PenstockError(JAVA_HELP.format(found=f"no {java}" if java else "none"))
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if match is None or int(match[1]) < 17:
        raise PenstockError(JAVA_HELP.format(found=output.splitlines()[0] if output else f"a broken {java}"))
    return match[1]
