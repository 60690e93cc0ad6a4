"""What Client's administrative calls take and return: clusters, topics, configurations, groups, lag, plans of a reset.

The calls themselves are methods of aiokc.Client.
"""

from __future__ import annotations

from ..types import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from .cluster import AclOperation, ApiRange, BrokerDescription, BrokerVersions, ClusterDescription, FeatureRange
from .groups import GroupDescription, GroupListing, Lag, MemberDescription
from .refusals import GroupIsActive, PartialListing, PlanIsOutdated
from .reset_plan import ResetPlan, ResetReason, ResetRow
from .reset_targets import (
    Back,
    LikeGroup,
    ResetTarget,
    Shift,
    ToCommitted,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
)
from .storage import LogDir, ReplicaSize, partition_sizes
from .topics import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType, TopicDescription

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "AclOperation",
    "ApiRange",
    "Back",
    "BrokerDescription",
    "BrokerVersions",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "FeatureRange",
    "GroupDescription",
    "GroupIsActive",
    "GroupListing",
    "Lag",
    "LikeGroup",
    "LogDir",
    "MemberDescription",
    "PartialListing",
    "PlanIsOutdated",
    "ReplicaSize",
    "ResetPlan",
    "ResetReason",
    "ResetRow",
    "ResetTarget",
    "Shift",
    "ToCommitted",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "ToOffsets",
    "ToTime",
    "TopicDescription",
    "partition_sizes",
]
