"""All commands: their modules, and a line about each for the help. A name may have two words."""

from __future__ import annotations

#: For each command its module below ``aiokc.cli.commands`` and its line in ``aiokc --help``.
COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("cluster.doctor", "find out why a client does not work, and what to try"),
    "topics": ("cluster.topics", "topics with partitions, records and size"),
    "topics show": ("cluster.topic_details", "one topic: leaders, replicas and offsets of each partition"),
    "offsets": ("cluster.offsets", "where logs begin and end, and which offsets belong to a time"),
    "cluster": ("cluster.cluster", "brokers, features and API versions"),
    "cat": ("records.cat", "the records of a topic, to the end that it has now"),
    "tail": ("records.tail", "the last records of a topic, and those that come"),
    "produce": ("records.produce", "records of lines, JSON or files into a topic"),
    "groups": ("groups.listing", "groups with state, members and lag"),
    "groups show": ("groups.showing", "groups in detail: offsets, members, state"),
    "groups kick": ("groups.kick", "take members out of a group"),
    "groups delete": ("groups.delete", "delete groups and their offsets"),
    "groups forget": ("groups.forget", "delete a group's offsets of topics"),
    "lag": ("groups.lag", "how far groups are behind, once or as a live view"),
    "reset-offsets": ("groups.reset_offsets", "let a group go on reading elsewhere"),
    "bench": ("records.bench", "how fast this machine reads a topic, and what takes the time"),
    "perf": ("records.perf", "how old records are when they arrive"),
    "fake": ("local.fake", "a cluster in this process, to play with and to test against"),
    "config show": ("local.config_show", "the options of clients, and where each is from"),
    "completion": ("local.completion", "completion of commands and options for bash, zsh or fish"),
}


def split_command(words: list[str], valued: frozenset[str]) -> tuple[str | None, list[str]]:
    """Return the name of the command in ``words``, and all other words.

    Options of every command may stand before it; ``valued`` are those that take the next word as their value.
    """
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if words[at] in valued else 1
    if at >= len(words) or words[at] == "--":
        return None, words
    two = " ".join(words[at : at + 2])
    length = 2 if two in COMMANDS else 1
    return " ".join(words[at : at + length]), words[:at] + words[at + length :]
