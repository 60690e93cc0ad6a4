"""The configuration file: ``[profile.NAME]`` sections, from the home directory or where the person says.

The working directory is never searched: a cloned repository must not choose which broker gets a password.
"""

from __future__ import annotations

import os
import stat
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from aiokc.config.written.values import in_home

from ..problems import UsageProblem, cut, nearest, quoted
from ..system import System
from .files import read_text


class Profile(NamedTuple):
    """A section of the configuration file: its options as TOML has them."""

    path: Path
    name: str
    options: dict[str, Any]


def config_path(args: Namespace, system: System) -> tuple[Path | None, bool]:
    """Return where the configuration file is, None without a home directory; and whether the person named it."""
    if args.config is not None:
        return in_home("--config", args.config), True
    if named := system.environ.get("AIOKC_CONFIG"):
        return in_home("$AIOKC_CONFIG", named), True
    folder = _config_home(system.environ)
    return folder and folder / "aiokc" / "config.toml", False


def _config_home(environ: Mapping[str, str]) -> Path | None:
    """Return the folder with the configuration of this user's programs; None where no absolute path is known for it.

    A relative path would be one of the working directory. XDG's specification, too, says to ignore one.
    """
    named = Path(environ.get("XDG_CONFIG_HOME", ""))
    if named.is_absolute():
        return named
    try:
        home = Path(environ.get("HOME") or Path.home())  # systemd and env -i give no HOME: the user's entry tells then
    except RuntimeError:  # the user has no entry
        return None
    return home / ".config" if home.is_absolute() else None


def read_profile(args: Namespace, system: System, warnings: list[str]) -> Profile | None:
    """Return the chosen profile: --profile, AIOKC_PROFILE, or "default"; None where none is chosen and none is there.

    Raises UsageProblem for a file that can't be read, for a profile that it does not have, and for a chosen one where
    no file can be looked for; ConfigError for a path in a home directory that is not there.
    """
    path, is_named = config_path(args, system)
    chosen = args.profile or system.environ.get("AIOKC_PROFILE") or None
    if path is None:
        if chosen is None:
            return None
        raise UsageProblem(
            f"there is no home directory, so no configuration file to take the profile {quoted(chosen)} from",
            "--config or AIOKC_CONFIG name the file",
        )
    content = _content(path, required=is_named or chosen is not None)
    profiles = content.get("profile", {})
    if unknown := [name for name in content if name != "profile"]:
        raise UsageProblem(
            f"{path}: unknown section or option {quoted(unknown[0])}: options belong below [profile.NAME]"
        )
    if not isinstance(profiles, dict) or not all(isinstance(each, dict) for each in profiles.values()):
        raise UsageProblem(f"{path}: options belong below [profile.NAME]")
    name = chosen or "default"
    if name not in profiles:
        if chosen is None:
            return None
        there = ", ".join(profiles) or "none"
        raise UsageProblem(f"{path} has no [profile.{cut(name)}]{nearest(name, profiles)}", f"profiles: {there}")
    _warn_of_readers(path, profiles[name], warnings)
    return Profile(path, name, profiles[name])


def _content(path: Path, *, required: bool) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        if required:
            raise UsageProblem(f"{path}: there is no such configuration file") from None
        return {}
    except OSError as error:
        raise UsageProblem(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{path}: is no text in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{path}: is no TOML: {error}") from error


def _warn_of_readers(path: Path, options: dict[str, Any], warnings: list[str]) -> None:
    """Warn where others can read a secret that the file holds itself, as far as its mode tells."""
    from .secrets import holds_secret
    from .spelling import field_name

    try:
        held = [name for name, value in options.items() if holds_secret(field_name(name), value)]
    except UsageProblem as problem:
        raise UsageProblem(f"{path}: {problem}") from problem
    # On Windows every file has these bits, and chmod changes none: who may read it stands in its ACL.
    if held and os.name != "nt" and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.append(f"{path} holds {held[0]} and can be read by others: chmod 600, or name the place of the secret")
