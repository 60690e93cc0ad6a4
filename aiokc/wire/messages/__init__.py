"""The messages of the APIs that a consumer speaks: one class for all versions of each, fields named as upstream."""
