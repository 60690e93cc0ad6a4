"""The conditions of a run: machine, operating system, versions. A figure means nothing without them."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from aiokc.testing.kafka.jars import KAFKA_VERSION, java_command

from .clients import Client
from .clients.franz_go import find_go

#: The line of the header that says that its figures say little.
WARNING: Final = "**WARNING**"
# For each CPU. A quiet machine has next to nothing; an hour of building and testing is forgotten after five minutes.
_BUSY: Final = 0.25


def environment(
    clients: Iterable[Client], *, local_broker: bool, load: Sequence[float] | None = None
) -> dict[str, str]:
    """Return the lines of the output's header: what each is about, and its text.

    ``load`` has the load averages from before the run, as os.getloadavg() returns them; None: those of now.
    """
    load = load or os.getloadavg()
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        "load average before": " ".join(f"{average:.2f}" for average in load),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "broker": f"Apache Kafka {KAFKA_VERSION}, one node" if local_broker else "given by AIOKC_BOOTSTRAP",
    }
    for client in clients:
        if client.name == "java":
            found["Java consumer"] = f"Apache Kafka {KAFKA_VERSION}, {_java()}"
        elif client.name == "franz-go":
            found["franz-go"] = _franz_go()
        elif client.distribution:
            found[client.distribution] = _version(client.distribution)
        if client.loop == "uvloop":
            found["uvloop"] = _version("uvloop")
    busy = warning(load[0], os.cpu_count() or 1)
    return found if busy is None else {WARNING: busy} | found


def keep_bytecode() -> None:
    """Have the processes that are started from here on keep the bytecode of what they import.

    The peers are installed, and pip has compiled them. aiokc is measured as it lies here: where Python is told to write
    no bytecode, each process would compile all of it anew, which no user's does.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def warning(load: float, cpus: int) -> str | None:
    """Return what a reader must know of a machine that had this load average when the run began; None: it was quiet."""
    if load <= _BUSY * cpus:
        return None
    return (
        f"the machine was busy when this run began: on average {load:.1f} other programs wanted its {cpus} CPUs in the "
        "minute before. These figures are too low, and some more than others: run it again when the machine is quiet"
    )


def _version(distribution: str) -> str:
    try:
        known = version(distribution)
    except PackageNotFoundError:
        known = "not installed"
    if distribution == "aiokc":
        return _aiokc_version(known)
    if distribution == "confluent-kafka" and known != "not installed":
        return f"{known} (librdkafka {importlib.import_module('confluent_kafka').libversion()[0]})"
    return known


def _aiokc_version(known: str) -> str:
    """Return the version, the commit of the source tree, and which decoder is in use."""
    decoder = "native" if importlib.import_module("aiokc.records").NATIVE else "pure Python"
    root = Path(__file__).resolve().parent.parent
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True, check=False
    )
    commit = described.stdout.strip() or "no commit"
    return f"{'source tree' if known == 'not installed' else known} at {commit}, {decoder} decoder"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java() -> str:
    java = java_command("")[0]
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return said.splitlines()[0].replace('"', "")


def _franz_go() -> str:
    required = (Path(__file__).resolve().parent / "go" / "go.mod").read_text().partition("franz-go v")[2].split()[0]
    said = subprocess.run([find_go() or "go", "version"], capture_output=True, text=True, check=True).stdout
    return f"{required}, {said.strip()}"
