"""Committed offsets: the requests that commit them and fetch them back."""
