"""Membership by the classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
