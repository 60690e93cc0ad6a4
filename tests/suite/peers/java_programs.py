"""JVMs of tests. They live for seconds: to compile code well, or collect garbage in threads, costs more than it gives.

JVMs of benchmarks are not started here, since what is measured is the JVM that applications have.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from aiokc.testing.kafka.jars import java, java_command, libs

from ..child_process import run_to_end

QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SECONDS: Final = 200.0
_COMPILING: Final = threading.Lock()


def answers_of(program: Path, asked: str) -> list[str]:
    """Run a program of one source file, with Kafka's jars and ``asked`` as its stdin; return the lines that it says."""
    answered = run_to_end(java_command(str(program), jvm=QUICK_JVM), seconds=_SECONDS, given=asked)
    assert answered.returncode == 0, answered.stderr
    return answered.stdout.splitlines()


def compiled_command(program: Path, *args: str, jvm: Sequence[str] = ()) -> list[str]:
    """Return the command that runs such a program many times: it is compiled at the first call alone."""
    command = java_command(program.stem, *args, jvm=(*QUICK_JVM, *jvm))
    # Behind the jars: Java's archive of loaded classes is of use where the class path begins as it did.
    command[command.index("-cp") + 1] += os.pathsep + _compiled(program)
    return command


def _compiled(program: Path) -> str:
    with _COMPILING:  # members of a group start in threads of their own
        return _classes(program)


@cache
def _classes(program: Path) -> str:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    jars = os.pathsep.join(map(str, libs().glob("*.jar")))  # the compiler takes no "*" where it is a module
    compiler = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", jars, "-d", folder.name, str(program))
    done = run_to_end([java(), "-XX:-UsePerfData", *QUICK_JVM, *compiler], seconds=_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder.name
