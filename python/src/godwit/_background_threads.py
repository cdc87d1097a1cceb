"""Threads that call Arrow Flight.

If a daemon thread returns from C++ while the interpreter shuts down, Python ends the thread, and the C++ runtime aborts the process
("terminate called without an active exception"). Therefore these threads are stopped and joined before the shutdown.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

# Timeout for joining all threads. A call that waits for a member that hangs does not return to Python, so it cannot abort the process.
JOIN_TIMEOUT_S = 2.0

is_exiting = threading.Event()
"""Set at the start of the shutdown; loops of background threads end then."""

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def start_background_thread(name: str, run: Callable[..., None], *args: Any) -> threading.Thread:
    """Starts a daemon thread that is joined at the shutdown of the interpreter."""
    thread = threading.Thread(target=run, args=args, name=name, daemon=True)
    _threads.add(thread)
    thread.start()
    return thread


@atexit.register
def _join_threads() -> None:
    is_exiting.set()
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    for thread in list(_threads):
        thread.join(max(0.0, deadline - time.monotonic()))
