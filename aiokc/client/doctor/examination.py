"""The examination: the steps in their order, to the first one that finds a problem, within one deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...config import ClientConfig
from ...core.doctor.conclusions import config_findings, config_problem, nothing_was_read, unfinished
from ...core.doctor.report import Finding, Report, Step, Verdict
from ...errors import ConfigError, KafkaError
from .cluster import Reached, look_at_bootstrap, look_at_cluster, look_at_listeners
from .fetch import fetch_from_leaders
from .group import look_at_group
from .kit import Kit
from .topic import look_at_topic


async def examine_cluster(
    config: ClientConfig,
    *,
    topic: str | None,
    group: str | None,
    seconds: float,
    on_finding: Callable[[Finding], None] | None,
) -> Report:
    """Examine the cluster that ``config`` leads to; return within ``seconds``, whatever the brokers do."""
    started = asyncio.get_running_loop().time()
    notes = _Notes(on_finding)
    try:
        kit = Kit(config, group=group, seconds=seconds)
    except ConfigError as error:
        notes.add([config_problem(error)])
    else:
        try:
            async with asyncio.timeout_at(kit.deadline) as limit:
                await _steps(kit, notes, topic, group)
        except TimeoutError:
            if not limit.expired():  # not ours: what on_finding raises, say
                raise
            notes.add([unfinished(notes.step, seconds)])
        finally:
            await kit.close()
    elapsed = asyncio.get_running_loop().time() - started
    return Report(findings=tuple(notes.findings), seconds=elapsed)


async def _steps(kit: Kit, notes: _Notes, topic: str | None, group: str | None) -> None:
    """Take one step after the other, until one finds a problem."""
    try:
        if kit.tls is not None:
            await kit.tls.get()
    except KafkaError as error:
        return notes.add([config_problem(error)])
    notes.add(config_findings(kit.config))
    notes.step = Step.DNS
    servers, findings = await look_at_bootstrap(kit)
    notes.add(findings)
    if not servers:
        return
    notes.step = Step.AUTHENTICATION
    entered, findings = await look_at_cluster(kit, servers)
    notes.add(findings)
    if notes.has_problem() or not entered or entered[0].seen is None:
        return
    notes.step = Step.LISTENERS
    reached, findings = await look_at_listeners(kit, servers, entered, entered[0].seen)
    notes.add(findings)
    if not notes.has_problem():
        await _topic_and_group(kit, notes, reached, topic, group)


async def _topic_and_group(kit: Kit, notes: _Notes, reached: Reached, topic: str | None, group: str | None) -> None:
    seen = None
    if topic is not None:
        notes.step = Step.TOPIC
        seen, findings = await look_at_topic(kit, reached, topic)
        notes.add(findings)
    if notes.has_problem():
        return
    if group is not None:
        notes.step = Step.GROUP
        notes.add(await look_at_group(kit, reached, group))
    if notes.has_problem():
        return
    notes.step = Step.FETCH
    notes.add([nothing_was_read()] if seen is None else await fetch_from_leaders(kit, reached, seen))


class _Notes:
    """The findings so far, and the step that is under way."""

    def __init__(self, tell: Callable[[Finding], None] | None) -> None:
        self.findings: list[Finding] = []
        self.step = Step.CONFIG
        self._tell = tell

    def add(self, findings: list[Finding]) -> None:
        """Take findings in, and tell the caller of each."""
        for found in findings:
            self.findings.append(found)
            if self._tell is not None:
                self._tell(found)

    def has_problem(self) -> bool:
        """Whether a step has found a problem: it is the last one."""
        return any(found.verdict is Verdict.PROBLEM for found in self.findings)
