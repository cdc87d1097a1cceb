"""Errors of the package, one class for each exit code of the program."""

from __future__ import annotations


class GodwitError(Exception):
    """An error of godwit, with the message of the program or of the server.

    ``exit_code`` is the exit code of the program: 1 a bug, 2 wrong usage, 3 bad data, 4 missing or refused on this machine, 5 an engine
    failed, 6 a remote or the network failed, 130 interrupted. ``reason`` is the machine-readable reason that a server sent, for example
    ``DATASET_CHANGED``; None if it sent none.
    """

    exit_code = 1
    reason: str | None = None

    def __init__(self, message: str, exit_code: int | None = None):
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class UsageError(GodwitError):
    """Invalid arguments, or arguments that exclude each other."""

    exit_code = 2


class InputError(GodwitError):
    """Invalid data."""

    exit_code = 3


class MachineError(GodwitError):
    """A file, library or resource of this machine is missing, or access to it is denied."""

    exit_code = 4


class EngineError(GodwitError):
    """A program that godwit runs failed."""

    exit_code = 5


class RemoteError(GodwitError):
    """A server or the network failed, or the server rejected the call."""

    exit_code = 6


class Interrupted(GodwitError):
    """The work was interrupted."""

    exit_code = 130


_ERROR_BY_EXIT_CODE: dict[int, type[GodwitError]] = {
    kind.exit_code: kind for kind in (UsageError, InputError, MachineError, EngineError, RemoteError, Interrupted)
}


def error_for_exit_code(code: int, message: str) -> GodwitError:
    """Returns the error for a program that exited with ``code``."""
    return _ERROR_BY_EXIT_CODE.get(code, GodwitError)(message, code)
