"""The exit codes of the command: what a script may rely on."""

from __future__ import annotations

#: Everything that was asked for is done. Also where the reader of a pipe has closed it: it had enough.
DONE = 0
#: One or more items failed; stderr says which.
FAILED = 1
#: A wrong option, argument or configuration.
USAGE = 2
#: A check found something: ``lag --fail-above``, ``doctor``.
FOUND = 3
#: Refused for safety: nothing was changed.
REFUSED = 4
#: The cluster was not reached, or did not accept the credentials.
UNREACHED = 5
#: Ended by SIGHUP: the terminal is gone.
HUNG_UP = 129
#: Ended by Ctrl-C.
INTERRUPTED = 130
#: Ended by SIGTERM.
TERMINATED = 143

#: What each code means, for the help and the documentation.
MEANINGS = {
    DONE: "done, all items; also where the reader of a pipe closed it",
    FAILED: "an item failed",
    USAGE: "wrong usage or configuration",
    FOUND: "a check found something (lag --fail-above, doctor)",
    REFUSED: "refused for safety, nothing was changed",
    UNREACHED: "the cluster was not reached, or did not accept the credentials",
    HUNG_UP: "SIGHUP: the terminal was closed",
    INTERRUPTED: "Ctrl-C",
    TERMINATED: "SIGTERM: a service manager, a container that stops, timeout",
}
