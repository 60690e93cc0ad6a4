"""The coordinator's side of the classic group protocol: members, rebalances, JoinGroup to LeaveGroup."""
