"""``examine``: looks at all that is between a client and its records, finds the first cause, and says what to try.

    report = await examine(bootstrap_servers="kafka:9092", topic="orders")
    if report.cause:
        print(report.cause.text, report.cause.advice)

The steps, in their order: the options; DNS; TCP; TLS; ApiVersions; authentication; metadata; every advertised listener;
the topic; the group; one Fetch per leader. The examination ends with the first step that finds a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack, cast

from ..client.arguments import checked_group, checked_seconds, checked_topics
from ..client.doctor.examination import examine_cluster
from ..config import ClientConfig, ConsumerConfig, ConsumerOptions, configured
from ..core.doctor.conclusions import config_problem
from ..core.doctor.report import Finding, Report, Step, Verdict
from ..errors import ConfigError

__all__ = ["Finding", "Report", "Step", "Verdict", "examine"]

_TIMEOUT_MS = 60_000


async def examine(
    config: ClientConfig | None = None,
    *,
    topic: str | None = None,
    timeout_ms: float = _TIMEOUT_MS,
    on_finding: Callable[[Finding], None] | None = None,
    **options: Unpack[ConsumerOptions],
) -> Report:
    """Examine the way from this process to a cluster, a topic and a group, as a client with these options goes it.

    Give the ``config`` of a Client or Consumer, or their options by keyword, or both. The group is that of the option
    ``group_id``, which may stand beside the ``config`` of a Client, too. ``on_finding`` is called with each finding as
    soon as it is there. Returns within ``timeout_ms``, and the second that closing connections may take, whatever the
    brokers do. It raises nothing for what is wrong: options that contradict each other are a finding, too. It raises
    ConfigError for a ``topic`` or ``timeout_ms`` that is no name or number.

    It changes nothing in the cluster, joins no group, and creates no topic. It uses the client's own TLS contexts,
    credentials and login code, and logs in no second time where a broker has refused the credentials.
    """
    seconds = checked_seconds(timeout_ms)
    if topic is not None:
        checked_topics([topic])
    try:
        used, group = _asked(config, cast(dict[str, Any], options))
    except ConfigError as error:
        found = config_problem(error)
        if on_finding is not None:
            on_finding(found)
        return Report(findings=(found,), seconds=0.0)
    return await examine_cluster(used, topic=topic, group=group, seconds=seconds, on_finding=on_finding)


def _asked(config: ClientConfig | None, options: dict[str, Any]) -> tuple[ClientConfig, str | None]:
    """Return the config to examine with, and the group to look at. Raises ConfigError."""
    if isinstance(config, ClientConfig) and not isinstance(config, ConsumerConfig):
        group = options.pop("group_id", None)  # a Client has no such option
        return configured(ClientConfig, config, options), None if group is None else checked_group(group)
    used = configured(ConsumerConfig, config, options)
    return used, used.group_id
