"""Errors, named by the boundary they crossed; each maps to one exit code of `bench`."""

import errno

# A full disk, a quota, and a limit on the size of a file (`ulimit -f`): to a user, all are a lack of room.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BenchError(Exception):
    """Base of the errors a user can act on: the message says what was wrong, where, and what to do next."""

    exit_code = 1


class SpecError(BenchError):
    """The request itself is wrong: an unknown key, an impossible placement, a value out of range."""

    exit_code = 2


class EnvError(BenchError):
    """A framework's environment could not be built, found or trusted."""

    exit_code = 3


class WorkerError(BenchError):
    """The framework's process failed, hung or was killed."""

    exit_code = 4
