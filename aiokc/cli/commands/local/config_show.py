"""``aiokc config show``: which options clients get, and where each of them is from."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from ...output.columns import Column

if TYPE_CHECKING:
    from dataclasses import Field

    from ...context import Context

HELP = (
    "Show the options that the commands' clients get, and where each is from. Secrets are shown as ***. Connects to "
    "nothing. From the strongest to the weakest: a flag, -X, $AIOKC_<OPTION>, the profile, the defaults."
)
EXAMPLES = (
    ("aiokc config show", "what is set, and where"),
    ("aiokc config show --profile staging --all", "all options, the defaults too"),
    ("aiokc config show -X fetch.wait.max.ms=100", "what a name of librdkafka's means here"),
)
COLUMNS = (Column("option"), Column("value"), Column("origin"))


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--all", action="store_true", help="with the defaults of all other options")
    parser.set_defaults(client_kind="any")


async def run(context: Context) -> int:
    """Show options."""
    from ...options.spelling import FIELDS

    settings = context.settings
    config = settings.consumer_config()  # what contradicts itself is an error here, too
    settings.producer_config()
    known = {**settings.values, **settings.producer_limits()}
    rows = [(name, _shown(FIELDS[name], setting.value), setting.origin) for name, setting in known.items()]
    if context.args.all:
        others = [field for name, field in FIELDS.items() if name not in known]
        rows += [(field.name, _shown(field, getattr(config, field.name, field.default)), "default") for field in others]
    context.out.rows(COLUMNS, sorted(rows))
    for warning in config.security_warnings:
        context.warn(warning)
    return 0


def _shown(field: Field[Any], value: Any) -> Any:
    if not field.repr and value is not None:  # no Secret, and may hold one all the same
        return "***"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return None if value is None else str(value)
