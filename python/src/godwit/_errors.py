"""What can go wrong, by the exit codes of the program."""

from __future__ import annotations


class GodwitError(Exception):
    """Something was not done; the message is godwit's own.

    ``exit_code`` is that of the program: 1 a bug, 2 wrong usage, 3 bad data, 4 missing or refused on this machine, 5 an engine
    failed, 6 a remote or the network failed, 130 interrupted. ``reason`` is the one that a server gave for programs, as
    ``DATASET_CHANGED``, where it gave one.
    """

    exit_code = 1
    reason: str | None = None

    def __init__(self, message: str, exit_code: int | None = None):
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(GodwitError):
    """Arguments that are wrong, or do not go together."""

    exit_code = 2


class InputError(GodwitError):
    """Data that are wrong."""

    exit_code = 3


class MachineError(GodwitError):
    """Something is missing or refused on this machine."""

    exit_code = 4


class EngineError(GodwitError):
    """A program that godwit runs failed."""

    exit_code = 5


class RemoteError(GodwitError):
    """A server or the network failed, or refused."""

    exit_code = 6


class Interrupted(GodwitError):
    """The work was stopped."""

    exit_code = 130


_BY_CODE: dict[int, type[GodwitError]] = {
    kind.exit_code: kind for kind in (UsageError, InputError, MachineError, EngineError, RemoteError, Interrupted)
}


def of_exit(code: int, message: str) -> GodwitError:
    """The error for a program that ended with ``code``."""
    return _BY_CODE.get(code, GodwitError)(message, code)
