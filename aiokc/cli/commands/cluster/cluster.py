"""``aiokc cluster``: the brokers of a cluster, their features and API versions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from ...output.columns import Column

if TYPE_CHECKING:
    from aiokc import Client

    from ...context import Context

HELP = "Show the cluster's id and its brokers; with --features what is finalized, with --api-versions what they speak."
EXAMPLES = (
    ("aiokc cluster", "its brokers"),
    ("aiokc cluster --features", "the features that brokers support, and the levels that are finalized"),
    ("aiokc cluster --api-versions --csv", "the versions of each API, for each broker"),
)

BROKERS = (
    Column("node_id", "number", "NODE"),
    Column("host"),
    Column("port", "number"),
    Column("rack"),
    Column("is_controller", "flag", "CONTROLLER"),
    Column("is_fenced", "flag", "FENCED"),
)
CLUSTER_ID = Column("cluster_id")
FEATURES = (
    Column("node_id", "number", "NODE"),
    Column("feature"),
    Column("min_version", "number", "MIN"),
    Column("max_version", "number", "MAX"),
    Column("finalized", "number"),
)
APIS = (
    Column("node_id", "number", "NODE"),
    Column("api_key", "number", "KEY"),
    Column("api"),
    Column("min_version", "number", "MIN"),
    Column("max_version", "number", "MAX"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--features", action="store_true", help="features (KIP-584) in the place of brokers")
    what.add_argument("--api-versions", action="store_true", help="API versions in the place of brokers")


async def run(context: Context) -> int:
    """Show the cluster."""
    async with context.client() as client:
        if context.args.features or context.args.api_versions:
            await _show_versions(context, client)
        else:
            await _show_brokers(context, client)
    return 0


async def _show_brokers(context: Context, client: Client) -> None:
    cluster = await client.describe_cluster()
    rows = [
        (each.node_id, each.host, each.port, each.rack, each.node_id == cluster.controller_id, each.is_fenced)
        for each in cluster.brokers
    ]
    if context.out.format == "table":
        context.out.lines([f"cluster {cluster.cluster_id or 'without an id'}"])
        context.out.rows(BROKERS, rows)
    else:
        context.out.rows((*BROKERS, CLUSTER_ID), [(*row, cluster.cluster_id) for row in rows])


async def _show_versions(context: Context, client: Client) -> None:
    from aiokc.errors import KafkaError

    rows: list[tuple[Any, ...]] = []
    for node_id, answer in sorted((await client.api_versions()).items()):
        if isinstance(answer, KafkaError):
            context.fail(f"broker {node_id}", answer)
        elif context.args.features:
            features = sorted(answer.features.values(), key=lambda each: each.name)
            rows += [(node_id, each.name, each.min_version, each.max_version, each.finalized) for each in features]
        else:
            apis = sorted(answer.apis.values())
            rows += [(node_id, each.api_key, each.name or None, each.min_version, each.max_version) for each in apis]
    context.out.rows(FEATURES if context.args.features else APIS, rows)
