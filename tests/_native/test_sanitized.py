"""The decoder in C under AddressSanitizer and UBSan: its tests, and many mutated batches more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.suite import examples

from .sanitized import Sanitized, Unavailable

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
#: The limit is that of the test here: what takes a second without sanitizers may take a minute on a busy machine.
#: Assertions are plain, since rewriting those of all imported modules takes longer there than the tests do.
PYTEST = ["pytest", "-q", "-p", "no:cacheprovider", "--timeout=0", "--assert=plain"]
#: Not among the few: tests that count the blocks left behind, of which there are none in there, and payloads cut at
#: every byte whose header says less than they hold, which without sanitizers are all compared.
NOT_AMONG_FEW = [
    *("-k", "not nothing_is_left_behind and not no_object_is_left_behind and not nothing_is_leaked"),
    *(f"--deselect=tests/_native/test_native.py::test_truncated_at_every_byte[{count}]" for count in (11, 3)),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    """A copy with its extension, or a skip of all tests here that says why."""
    try:
        copy = Sanitized(tmp_path_factory.mktemp("sanitized"))
        copy.build()
        return copy
    except Unavailable as error:
        reason = f"{error}: the C decoder was not run under sanitizers"
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("batches", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_nothing_to_complain_about(built: Sanitized, batches: int) -> None:
    names = (
        "_native/test_native.py",
        "_native/encoding",
        "records/columns/test_columns.py",
        "records/columns/test_runs.py",
        "records/packed/test_packed_runs.py",
        "records/test_hostile_batch.py",
        "_native/test_async_steps.py",
        "_native/reading/test_reader_thread.py",
        "records/test_record_parts.py",
        "records/test_record_span.py",
        "test_record_contract.py",
    )
    which: tuple[str, ...] = ("--hypothesis-profile", examples.SAMPLE)
    if batches < 10_000:
        which = ("--hypothesis-profile", examples.FEW, *NOT_AMONG_FEW)
    summary = built.succeed(*PYTEST, *which, *(f"tests/{name}" for name in names))
    assert " passed" in summary
    assert "skipped" not in summary
    assert f"{batches} batches" in built.succeed("tests._native.native_fuzz", str(batches), "2")
    found = built.succeed("tests._native.guided_fuzz", "--rounds", str(batches), "--seed", "3")
    assert f"{batches} inputs" in found
    found = built.succeed("tests._native.packed_fuzz", "--rounds", str(batches), "--seed", "4")
    assert f"{batches} payloads" in found


_RECORD: tuple[str, str, str] = ("reader.h", "if (cursor->at >= cursor->size)", "if (cursor->at >= cursor->size + 64)")
_PLAIN: tuple[str, str, str] = ("reader.h", "cursor->size - at < NUMBERS", "cursor->size - at < -64")
_ZSTD_BLOCK: tuple[str, str, str] = ("zstd_frame.c", "packed.size - at < 3)", "packed.size - at < 0)")


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("bug", "compiled", "fuzz"),
    [
        pytest.param(_RECORD, "records.c", ("native_fuzz", "10000"), id="native_fuzz"),
        pytest.param(_PLAIN, "*.c", ("native_fuzz", "10000"), id="native_fuzz, plain", marks=pytest.mark.long),
        pytest.param(_RECORD, "*.c", ("guided_fuzz", "--rounds", "10000"), id="guided_fuzz", marks=pytest.mark.long),
        pytest.param(
            _ZSTD_BLOCK,
            "zstd_frame.c",
            ("packed_fuzz", "--rounds", "20000"),
            id="packed_fuzz",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_decoder_that_reads_too_far_is_found_out(
    built: Sanitized, tmp_path: Path, bug: tuple[str, str, str], compiled: str, fuzz: tuple[str, ...]
) -> None:
    """The sanitizers are at work: they report a read behind the end of a payload.

    Nearly every source includes the reader. For the first case one of them with the bug is enough, and sooner built.

    The guided fuzzer compares more: it may see what was read there before a read leaves the memory of all batches.
    """
    copy = built.copied(tmp_path)
    file, check, wrong = bug
    source = copy.sources / file
    text = source.read_text()
    assert text.count(check) == 1
    source.write_text(text.replace(check, wrong))
    copy.build(compiled)
    done = copy.run("-m", f"tests._native.{fuzz[0]}", *fuzz[1:])
    assert done.returncode != 0
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr or (
        fuzz[0] == "guided_fuzz" and "AssertionError: BatchHeader(" in done.stderr
    )
