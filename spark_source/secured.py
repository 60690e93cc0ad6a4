"""Connecting with the secrets, keys and certificates that are on this machine.

The driver and each executor's worker do it for themselves: TLS contexts, tokens and connections never travel.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark import SparkFiles

from aiokc import Client, ClientConfig
from aiokc.config import is_content
from aiokc.errors import ConfigError

from .options.client_options import in_java_names, in_words_of_a_query
from .options.security_options import SecurityTexts

_LONGEST_JAAS: Final = 1 << 20  # bytes
_PASSWORD: Final = {"sasl_plain_username", "sasl_plain_password"}


async def connected(client: ClientConfig, security: SecurityTexts, *, timeout_ms: int | None = None) -> Client:
    """Return a Client that has connected. Raises what Client.start() does, with Java's names of options.

    Raises ConfigError too if this machine has no such file as ``security`` names.
    """
    config = await asyncio.to_thread(secured, client, security) if security.texts else client
    with in_java_names(), in_words_of_a_query():
        started = Client(config)
        await started.start(timeout_ms=timeout_ms)
    return started


def secured(client: ClientConfig, security: SecurityTexts) -> ClientConfig:
    """Return ``client`` with what ``security`` says on this machine: files are found, and JAAS texts read.

    Raises ConfigError, which names the option, the machine and the path of a file that is not there.
    """
    found = security.fields(local_file, _text_of)
    if security.has_jaas_file and found.keys() >= _PASSWORD:
        # Asked again for each authentication: a password that is exchanged in the file needs no restart.
        found = {name: value for name, value in found.items() if name not in _PASSWORD}
        found["sasl_credentials_provider"] = _JaasFile(security)
    with in_java_names():
        return replace(client, **found)


class _JaasFile:
    """Reads the user and the password from the file with the JAAS text, whenever it is called."""

    def __init__(self, security: SecurityTexts) -> None:
        self._security = security

    async def __call__(self) -> tuple[str, str]:
        found = await asyncio.to_thread(self._security.fields, local_file, _text_of)
        return found["sasl_plain_username"], found["sasl_plain_password"]


def local_file(option: str, path: str) -> Path:
    """Return the file or folder that an option names. Raises ConfigError if this machine has none.

    The error quotes no text that may be what the file holds, a private key for instance, in the place of its path.
    A relative path is looked for in the working directory of the process, where YARN and Kubernetes put the files of
    ``--files``, and then among the files that Spark has sent to this machine (SparkFiles).
    """
    if is_content(path):
        raise ConfigError(f"option '{option}' must be the path of a file, not what is in it")
    candidates = [Path(path)]
    if not candidates[0].is_absolute():
        candidates += [folder / path for folder in _spark_files()]
    try:
        for candidate in candidates:
            if candidate.exists():
                return candidate
    except OSError as error:  # without it as a cause: it shows the text
        what = f"option '{option}' must be the path of a file: can't look for it on {socket.gethostname()}"
        raise ConfigError(f"{what}: {error.strerror}") from None
    raise ConfigError(
        f"option '{option}': there is no {' and no '.join(map(repr, map(str, candidates)))} on {socket.gethostname()}. "
        "The driver and every executor read this file by themselves: put it on each machine under the same path, or "
        f"send it with the application (--files {path}, or spark.sparkContext.addFile) and give only its name, "
        f"{Path(path).name!r}: it is then found among SparkFiles"
    )


def _spark_files() -> list[Path]:
    """Return the folders of the files that Spark has sent; none in a process that Spark has not told."""
    try:
        told = SparkFiles.getRootDirectory()
    except AssertionError:  # a process without a SparkContext, which is no worker either
        return []
    if not told:
        return []
    folder = Path(told)
    # Spark plans streams with a folder of the job, and serves clients of Spark Connect with one of their session. It is
    # inside the folder of the application, userFiles-<uuid>, into which addFile() and --files put what they send.
    return [folder, folder.parent] if folder.parent.name.startswith("userFiles") else [folder]


def _text_of(option: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LONGEST_JAAS + 1)
    except OSError as error:
        raise ConfigError(f"option '{option}': can't read {str(path)!r}: {error.strerror}") from error
    if len(data) > _LONGEST_JAAS:
        raise ConfigError(f"option '{option}': {str(path)!r} has more than {_LONGEST_JAAS} bytes: is it the one?")
    try:
        return data.decode()
    except UnicodeDecodeError:  # without it as a cause: it shows the bytes
        raise ConfigError(f"option '{option}': {str(path)!r} is not text in UTF-8") from None
