"""Why a run that had begun was stopped. What it wrote before is good."""


class RunError(Exception):
    """A run stopped; the message says why and how to resume. ``code`` is the exit status of the command line."""

    code = 1


class NotFiniteError(RunError):
    """The loss or its gradient became infinite or not a number."""


class DivergedError(RunError):
    """The loss became far greater than it was at the start."""


class InterruptedRunError(RunError):
    """Somebody asked the run to stop; it wrote a checkpoint first."""

    code = 130
