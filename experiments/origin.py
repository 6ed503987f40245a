"""Where and when results were computed, and by what: kept with each of them."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

#: Packages whose version can change a result.
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "quapy", "quapy-nemsis")


def version(package: str) -> str:
    """Return the installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """Return what the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@cache
def commit() -> str:
    """Return the commit of the sources, with a + if they were edited; the text is empty outside of a repository."""
    folder = Path(__file__).parent.parent
    try:
        words = [
            subprocess.run(["git", *line], cwd=folder, capture_output=True, text=True, check=True)
            for line in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "-uno"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return words[0].stdout.strip() + ("+" if words[1].stdout.strip() else "")


@cache
def machine() -> dict[str, str]:
    """Return the hardware and the versions, by name."""
    return {
        "system": platform.platform(),
        "processor": processor(),
        "architecture": platform.machine(),
        "cores": str(os.cpu_count()),
        "Python": platform.python_version(),
        **{package: version(package) for package in (*PACKAGES, "matplotlib")},
        "commit": commit() or "none: installed without a repository",
    }


def here_and_now(**more: str) -> dict[str, str]:
    """Return the origin of a result that is computed now: the time in UTC, the machine, and more facts."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"date": now, **machine(), **more}


def summary(origins: Iterable[dict[str, str]]) -> list[list[str]]:
    """Return rows of what results have in common, and what differs: each fact once, dates from first to last."""
    values: dict[str, list[str]] = {}
    for origin in origins:
        for name, value in origin.items():
            values.setdefault(name, []).append(value)
    rows = []
    for name, found in values.items():
        known = sorted(set(found))
        both_ends = name == "date" and len(known) > 1
        rows.append([name, f"{known[0]} to {known[-1]}" if both_ends else "; ".join(known)])
    return rows
