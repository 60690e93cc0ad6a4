"""The options of clients, from all places that may name them, each with its origin.

From the strongest to the weakest: a flag, -X, the environment (AIOKC_<OPTION>), the profile, the defaults.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from aiokc import ClientConfig, ConsumerConfig, ProducerConfig
from aiokc.config.checks import MOST_32
from aiokc.config.written.mapping import names_no_option
from aiokc.config.written.other_names import our_name
from aiokc.errors import ConfigError

from ..problems import UsageProblem, quoted
from ..system import System
from .profiles import Profile, read_profile
from .secrets import asks_for_secret, holds_secret, resolved_secret
from .spelling import FIELDS, OF_KIND, field_name, typed
from .times import duration_ms

_PREFIX: Final = "AIOKC_"
_TIMEOUT_MS: Final = 30_000
#: What says the same to the commands that write records.
_LETTERS: Final = {"group_id": "-g", "auto_offset_reset": "-o"}
#: The origin of a default that is not the library's.
BY_COMMAND: Final = "the command's default"
#: That of a wait that is as long as a command tries.
_AS_TIMEOUT: Final = "as --timeout"


class Setting(NamedTuple):
    """The value of an option and where it is from: a flag, an -X, a variable, a line of a profile, or the default."""

    value: Any
    origin: str


class Settings(NamedTuple):
    """All options that were given, by aiokc's names. ``warnings`` are about where they are from."""

    values: dict[str, Setting]
    profile: Profile | None
    warnings: list[str]

    def client_config(self, **options: Any) -> ClientConfig:
        """Return the ClientConfig of these options and of those given here. Raises ConfigError."""
        return ClientConfig(**{**self.of_kind("client"), **options})

    def consumer_config(self, **options: Any) -> ConsumerConfig:
        """Return the ConsumerConfig of these options and of those given here. Raises ConfigError."""
        return ConsumerConfig(**{**self.of_kind("consumer"), **options})

    def reader_config(self, **options: Any) -> ConsumerConfig:
        """Return the ConsumerConfig of a consumer that joins no group. Raises ConfigError.

        The options of groups are for others of the same profile and environment, and mean nothing here: they are left
        out, whatever they say.
        """
        return ConsumerConfig(**{**self.of_kind("reader"), "group_id": None, "enable_auto_commit": False, **options})

    def producer_config(self, **options: Any) -> ProducerConfig:
        """Return the ProducerConfig of these options and of those given here. Raises ConfigError."""
        limits = {name: setting.value for name, setting in self.producer_limits().items()}
        return ProducerConfig(**{**limits, **self.of_kind("producer"), **options})

    def producer_limits(self) -> dict[str, Setting]:
        """Return how long a producer's call may wait, and how long a record may take, where no option says that.

        Both are --timeout, which is how long a command tries, whatever it does. A record has at least the time of one
        attempt: ProducerConfig refuses less.
        """
        limit, origin = self.values["default_api_timeout_ms"]
        given = self.of_kind("producer")
        attempt, linger = (given.get(name, FIELDS[name].default) for name in ("request_timeout_ms", "linger_ms"))
        if not all(isinstance(ms, int) for ms in (limit, attempt, linger)):
            return {}  # the config refuses the one that is none
        limits = {"max_block_ms": limit, "delivery_timeout_ms": max(limit, attempt + linger)}
        origin = origin if origin == BY_COMMAND else _AS_TIMEOUT
        return {name: Setting(ms, origin) for name, ms in limits.items() if name not in given}

    def of_kind(self, kind: str) -> dict[str, Any]:
        """Return the options that a kind of client has (OF_KIND), those of other kinds left out."""
        options = {name: setting.value for name, setting in self.values.items() if name in OF_KIND[kind]}
        if kind == "producer":
            options |= _fitted(self.values)  # no broker holds its requests, whatever fetch_max_wait_ms is for others
        return options


def read_settings(args: Namespace, system: System) -> Settings:
    """Read what the arguments, the environment and the profile say. Raises UsageProblem for what is wrong in them."""
    warnings: list[str] = []
    profile = read_profile(args, system, warnings)
    values = {
        "default_api_timeout_ms": Setting(_TIMEOUT_MS, BY_COMMAND),
        "client_id": Setting("aiokc-cli", BY_COMMAND),
    }
    if profile is not None:
        values.update(_of_profile(profile, system))
    values.update(_of_environment(system, warnings))
    values.update(_of_options(args, system))
    if args.bootstrap_servers is not None:
        values["bootstrap_servers"] = Setting(args.bootstrap_servers, "--bootstrap-servers")
    if args.timeout is not None:
        values["default_api_timeout_ms"] = Setting(_timeout_ms(args.timeout), "--timeout")
    _fit_timeouts(values)
    if asks_for_secret({name: setting.value for name, setting in values.items()}):
        try:
            password = system.ask_secret("SASL password: ")
        except EOFError:
            raise UsageProblem(
                "no password was given", f"type it, or give it in ${_PREFIX}SASL_PLAIN_PASSWORD or in a profile"
            ) from None
        if password is not None:
            values["sasl_plain_password"] = Setting(typed("sasl_plain_password", password, "password"), "typed in")
    return Settings(values, profile, warnings)


def _timeout_ms(text: str) -> int:
    milliseconds = duration_ms(text, "--timeout")
    if milliseconds < 1:
        raise UsageProblem(f"--timeout: {quoted(text)} leaves no time to try: write 500ms, 10s or 2m")
    return min(milliseconds, MOST_32)


def _of_profile(profile: Profile, system: System) -> Iterator[tuple[str, Setting]]:
    for name, value in profile.options.items():
        yield _setting(name, value, f"{profile.path}, [profile.{profile.name}]", system)


def _of_environment(system: System, warnings: list[str]) -> Iterator[tuple[str, Setting]]:
    """Yield the options of variables, under aiokc's own names last: they win over other clients' names of the same.

    What is no option is warned of, and no error: somebody else may have set the variable for something else.
    """
    given = {name: name.removeprefix(_PREFIX).lower() for name in system.environ if name.startswith(_PREFIX)}
    for name, spelled in sorted(given.items(), key=lambda item: (item[1] in FIELDS, item)):
        if names_no_option(name, _PREFIX):
            continue
        try:
            field_name(spelled)
        except UsageProblem as problem:
            warnings.append(f"${name} gives no option: {problem}")
        else:
            yield _setting(spelled, system.environ[name], f"${name}", system)


def _of_options(args: Namespace, system: System) -> Iterator[tuple[str, Setting]]:
    for option in args.options:
        name, equals, value = option.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"-X {quoted(option)} must be KEY=VALUE")
        field = _field_for(name, args)
        if holds_secret(field, value):
            raise UsageProblem(
                f"-X {name}: a secret on the command line is seen by everybody on this machine; give -X "
                f"{name}='{{env=NAME}}', '{{file=PATH}}' or '{{command=[\"…\"]}}', or ${_PREFIX}{field.upper()}"
            )
        yield _setting(name, value, f"-X {name}", system)


def _field_for(name: str, args: Namespace) -> str:
    """Return the option that ``name`` means. Raises UsageProblem for one that the command's client would not use."""
    try:
        return field_name(name, getattr(args, "client_kind", "client"))
    except UsageProblem as problem:
        if hasattr(args, "offset") and (letter := _LETTERS.get(our_name(name))):
            problem.hint = f"say {letter} in its place"
        raise


def _setting(name: str, value: object, origin: str, system: System) -> tuple[str, Setting]:
    try:
        field = field_name(name)
        value, place = resolved_secret(name, value, system)
        return field, Setting(typed(field, value, name), f"{origin}{place}")
    except (UsageProblem, ConfigError) as problem:
        raise UsageProblem(str(problem) if origin.startswith("-X") else f"{origin}: {problem}") from problem


def _fit_timeouts(values: dict[str, Setting]) -> None:
    """Let no request outlive the call: where --timeout is short, so are the waits inside it, unless they are given."""
    parked = values["fetch_max_wait_ms"].value if "fetch_max_wait_ms" in values else 0
    if isinstance(parked, int):  # else the config refuses it
        # A Fetch may be held for fetch_max_wait_ms: ClientConfig refuses a request_timeout_ms that is no longer.
        values.update({name: Setting(ms, _AS_TIMEOUT) for name, ms in _fitted(values, parked + 1).items()})


def _fitted(values: Mapping[str, Setting], least_of_requests: int = 0) -> dict[str, int]:
    """Return the waits inside a call that are shorter than by default, since the call is, and that are not given."""
    limit = values["default_api_timeout_ms"].value
    if not isinstance(limit, int) or limit <= 1_000:
        return {}  # what is no number is refused by the config
    waits = {"request_timeout_ms": max(limit, least_of_requests), "socket_connection_setup_timeout_ms": limit}
    given = {name for name, setting in values.items() if setting.origin != _AS_TIMEOUT}
    return {name: ms for name, ms in waits.items() if name not in given and ms < cast(int, FIELDS[name].default)}
