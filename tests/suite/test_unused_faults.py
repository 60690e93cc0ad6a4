"""A test fails if no request ever meets its fault, and the failure names the line that asked for the fault."""

from __future__ import annotations

import pytest

from aiokc import Client
from aiokc.error_codes import ErrorCode
from aiokc.testing import Cluster
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest

from .unused_faults import forget, insist_on_use, may_be_unused


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_fault_that_nothing_meets_is_named(in_thread: bool) -> None:
    cluster = Cluster()
    if in_thread:
        with cluster.in_thread():
            cluster.intercept(FetchRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
    else:
        async with cluster:
            cluster.intercept(FetchRequest, ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(
        AssertionError, match=r"tests/suite/test_unused_faults.py:\d+: caught 0 of 1 requests of API 1$"
    ):
        insist_on_use()
    forget()


@pytest.mark.parametrize(("times", "is_enough"), [(None, True), (1, True), (9, False)])
async def test_a_fault_is_to_be_met_as_often_as_it_says(times: int | None, is_enough: bool) -> None:
    async with Cluster() as cluster:
        cluster.intercept(MetadataRequest, lambda exchange: None, times=times)
        async with Client(bootstrap_servers=cluster.bootstrap) as client:
            await client.list_topics()
    if is_enough:
        insist_on_use()
        return
    with pytest.raises(AssertionError, match=r"caught \d of 9"):
        insist_on_use()
    forget()


async def test_one_that_is_cancelled_has_to_be_met_once() -> None:
    async with Cluster() as cluster:
        cluster.intercept(MetadataRequest, ErrorCode.UNKNOWN_SERVER_ERROR, times=3).cancel()
    with pytest.raises(AssertionError, match="caught 0 of 1"):
        insist_on_use()
    forget()


async def test_one_may_be_declared_as_unused() -> None:
    async with Cluster() as cluster:
        may_be_unused(cluster.intercept(MetadataRequest, ErrorCode.UNKNOWN_SERVER_ERROR))
    insist_on_use()
