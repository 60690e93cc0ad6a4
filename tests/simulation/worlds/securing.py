"""Worlds with logins: how members authenticate, and what goes wrong with logins, sessions, users and ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokc.testing import Acl, ApiKey, Cluster, faults
from tests.suite.unused_faults import may_be_unused

from .plan import FaultPlan, MemberPlan, Plan, SecurityPlan

if TYPE_CHECKING:
    from .faults import Nemesis

Apply: TypeAlias = Callable[["Nemesis", Random, float], Awaitable[None]]

#: The password of every user.
_PASSWORD: Final = "a secret"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_GROUP: Final = "g"


def cluster_options(plan: SecurityPlan | None) -> dict[str, Any]:
    """Return the keywords of a world's Cluster."""
    return {} if plan is None else {"sasl": dict.fromkeys(plan.users, _PASSWORD), "session_ms": plan.session_ms}


def secured(plan: Plan) -> Plan:
    """Return the same world, in which members log in, with more faults; drawn from a generator of its own."""
    random = Random(f"{plan.seed} security")
    session_ms = random.choice((0, 1_500, 4_000, 15_000))
    users = tuple(random.sample(("alice", "bob"), random.randint(1, 2)))
    members = tuple(_logging_in(random, member, random.choice(users)) for member in plan.members)
    kinds = random.sample(SECURITY_FAULTS, random.randint(1, 5))
    faults = [
        FaultPlan(
            at=random.uniform(0, plan.seconds),
            kind=random.choice(kinds),
            seconds=random.choice((0.05, 0.5, 2.0, 6.0)) * random.uniform(0.5, 1.5),
            seed=random.getrandbits(32),
        )
        for _ in range(random.randint(1, 12))
    ]
    return replace(
        plan,
        members=members,
        security=SecurityPlan(users, session_ms),
        faults=tuple(sorted([*plan.faults, *faults], key=lambda fault: fault.at)),
    )


def _logging_in(random: Random, member: MemberPlan, user: str) -> MemberPlan:
    options = member.options.copy()
    options["security_protocol"] = "SASL_PLAINTEXT"
    options["sasl_mechanism"] = random.choice(_MECHANISMS)
    options["sasl_plain_username"], options["sasl_plain_password"] = user, _PASSWORD
    options["allow_plaintext_credentials"] = True
    options["metadata_max_age_ms"] = 2_000  # a topic that was forbidden is asked for again at this pace
    options["socket_connection_setup_timeout_ms"] = 5_000  # on the slowest links a login takes more than a second
    return replace(member, options=options)


# The faults


async def _refused_logins(nemesis: Nemesis, random: Random, seconds: float) -> None:
    times = random.randint(1, 4)
    nemesis.note(f"{times} logins refused")
    nemesis.cluster.refuse_login(times=times)


async def _slow_logins(nemesis: Nemesis, random: Random, seconds: float) -> None:
    delay = random.uniform(0.1, 3)
    nemesis.note(f"logins take {delay:.2f} s, for {seconds:.2f} s")
    fault = nemesis.cluster.slow_login(delay)
    await asyncio.sleep(seconds)
    fault.cancel()


async def _closed_handshakes(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note("connections closed after SaslHandshake")
    nemesis.cluster.close_after_handshake(times=random.randint(1, 3))


async def _wrong_signatures(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note("wrong server signature")
    nemesis.cluster.wrong_server_signature(times=random.randint(1, 2))


async def _illegal_states(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note("ILLEGAL_SASL_STATE")
    nemesis.cluster.illegal_sasl_state(times=random.randint(1, 3))


async def _lost_logins(nemesis: Nemesis, random: Random, seconds: float) -> None:
    api = random.choice((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
    nemesis.note(f"lost answer to {api.name}")
    may_be_unused(nemesis.cluster.intercept(api, faults.lose_answer(), times=random.randint(1, 3)))


async def _ended_sessions(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note("all sessions end")
    nemesis.cluster.expire_sessions()


async def _demanded_logins(nemesis: Nemesis, random: Random, seconds: float) -> None:
    nemesis.note(f"all sessions end in {seconds:.2f} s")
    nemesis.cluster.demand_reauth(seconds)


async def _session_lengths(nemesis: Nemesis, random: Random, seconds: float) -> None:
    length = random.choice((0, 1_100, 2_000, 60_000))
    nemesis.note(f"sessions of {length} ms")
    nemesis.cluster.session(length)


async def _changed_password(nemesis: Nemesis, random: Random, seconds: float) -> None:
    user = random.choice(nemesis.users)
    nemesis.note(f"another password for {user}, for {seconds:.2f} s")
    nemesis.cluster.set_password(user, "another secret")
    await asyncio.sleep(seconds)
    nemesis.cluster.set_password(user, _PASSWORD)


async def _revoked_topic(nemesis: Nemesis, random: Random, seconds: float) -> None:
    user, topic = random.choice(nemesis.users), random.choice(sorted(nemesis.topics))
    nemesis.note(f"{user} may not read {topic}, for {seconds:.2f} s")
    nemesis.cluster.revoke(user, topic)
    await asyncio.sleep(seconds)
    nemesis.cluster.grant(Acl(user, "All", topic=topic))


async def _revoked_group(nemesis: Nemesis, random: Random, seconds: float) -> None:
    user = random.choice(nemesis.users)
    nemesis.note(f"{user} may not use the group, for {seconds:.2f} s")
    nemesis.cluster.revoke(user, group=_GROUP)
    await asyncio.sleep(seconds)
    nemesis.cluster.grant(Acl(user, "All", group=_GROUP))


def heal_security(cluster: Cluster, plan: SecurityPlan, topics: list[str]) -> None:
    """Undo what `Cluster.heal` does not: passwords and ACLs."""
    for user in plan.users:
        cluster.set_password(user, _PASSWORD)
        for topic in topics:
            cluster.grant(Acl(user, "All", topic=topic))
        cluster.grant(Acl(user, "All", group=_GROUP))


SECURITY_APPLY: Final[dict[str, Apply]] = {
    "refused logins": _refused_logins,
    "slow logins": _slow_logins,
    "closed handshakes": _closed_handshakes,
    "wrong signatures": _wrong_signatures,
    "illegal states": _illegal_states,
    "lost logins": _lost_logins,
    "ended sessions": _ended_sessions,
    "demanded logins": _demanded_logins,
    "session lengths": _session_lengths,
    "changed password": _changed_password,
    "revoked topic": _revoked_topic,
    "revoked group": _revoked_group,
}
SECURITY_FAULTS: Final = tuple(SECURITY_APPLY)
