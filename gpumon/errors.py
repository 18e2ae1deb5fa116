"""Every error gpumon raises on purpose.

::

    GpumonError                   exit code 1: the work failed
    ├── UsageError                exit code 2: the caller asked for something impossible
    │   └── InvalidSampleError    a sample that no device can have meant
    ├── SourceUnavailableError    exit code 3: no GPU source can be read
    │   └── RestartNeededError    and only a new process can read it again
    ├── NoDaemonError             exit code 4: no daemon, or its state is stale
    ├── NothingToJudgeError       exit code 5: a limit was given, and no GPU has a verdict
    ├── PrometheusError           a server that does not answer as a Prometheus does
    ├── FolderInUseError          another daemon lives in the runtime folder
    ├── UnreadableLogError        a log that cannot be understood
    ├── UnwritableFileError       a file that was asked for and cannot be written
    └── RingError                 a phase ring that cannot be written or trusted

The message of each is one sentence that a user can act on: the command line
prints it as it is and exits with ``exit_code``.
"""

from __future__ import annotations


class GpumonError(Exception):
    """Root of the tree; catch it to catch everything gpumon raises on purpose."""

    exit_code = 1


class UsageError(GpumonError):
    """The caller's words or numbers make no sense."""

    exit_code = 2


class InvalidSampleError(UsageError):
    """A value that no device can have meant, such as a busy ratio of 2.55."""


class SourceUnavailableError(GpumonError):
    """No GPU source can be read: no driver, wrong driver, unknown source."""

    exit_code = 3


class RestartNeededError(SourceUnavailableError):
    """Only a new process can read the source again, so this one should end.

    Raised only where a new process has what this one lacks, so that a service manager cannot
    restart it in a loop.
    """


class NoDaemonError(GpumonError):
    """No running ``gpumon serve`` was found, or what it left is stale."""

    exit_code = 4


class NothingToJudgeError(GpumonError):
    """A limit was given, and of no GPU enough was seen to say above or below."""

    exit_code = 5


class PrometheusError(GpumonError):
    """A server that cannot be asked, refuses, or does not answer as a Prometheus does."""


class FolderInUseError(GpumonError):
    """Another daemon lives in the runtime folder: two would overwrite each other's state."""


class UnreadableLogError(GpumonError):
    """A log that is empty, binary, or has no utilisation column."""


class UnwritableFileError(GpumonError):
    """A file that was asked for and cannot be written; what was there is untouched."""


class RingError(GpumonError):
    """A phase ring that cannot be made, or must not be trusted."""
