"""Commands end with one line when something is wrong, not with a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors of the user, an interruption or a closed pipe into the end of the process."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(
            "stopped: what is finished is kept, and the same command continues"
        ) from None
    except BrokenPipeError:  # as in `… | head`; nothing more can be printed, not even at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from None


def at_least(options: dict, least: int, *names: str) -> None:
    """Refuse options that are too small."""
    for name in names:
        if options[name] < least:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} must be at least {least}; got {options[name]}")
