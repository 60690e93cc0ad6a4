"""Which shared library unpacks lz4 and zstd: one that is fit, or none, and never a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from aiokc.records import NATIVE, Codec, NewRecord, encode_batch, unpack_run
from aiokc.records.packed import codec_libraries
from tests.suite.child_process import run_to_end

from ..batches import read_all

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
pytestmark = pytest.mark.skipif(not NATIVE, reason="without the extension no library is called")
CODECS: Final = (Codec.LZ4, Codec.ZSTD)


@pytest.fixture(autouse=True)
def looked_for_anew() -> Any:
    _forget()
    yield
    _forget()


def _forget() -> None:
    codec_libraries.look_for.cache_clear()
    for codec in CODECS:
        _native.use_codec_library(codec, None)


def unpacks(codec: Codec) -> bool:
    packed, run = encode_batch([NewRecord(b"text" * 1_000)], codec=codec), bytearray()
    taken = unpack_run(memoryview(packed), run, limit=1 << 20, at_once=1 << 20, check_crcs=True)
    return taken == len(packed) and read_all(run, check_crcs=False) == read_all(packed)


@pytest.mark.parametrize("codec", CODECS)
def test_without_a_library_the_packages_unpack(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(codec_libraries.SETTING, "0")
    assert codec_libraries.look_for(codec) is None
    assert unpacks(codec)


@pytest.mark.parametrize("codec", CODECS)
def test_without_a_fit_library_the_packages_unpack(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_libraries, "candidates", lambda _: ["/nowhere/liblz4.so.1"])
    assert codec_libraries.look_for(codec) is None
    assert unpacks(codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("path", ["/tmp/\udce9/lib.so", f"/tmp/{chr(0xD800)}/lib.so", "/tmp/\0/lib.so"], ids=ascii)
def test_a_path_that_is_not_utf8_or_none_at_all(codec: Codec, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation may lie below a directory of any name; an error would come from each call, for ever."""
    monkeypatch.setattr(codec_libraries, "candidates", lambda _: [path])
    assert codec_libraries.look_for(codec) is None
    assert unpacks(codec)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name of a file must be UTF-8")
def test_a_library_in_a_directory_whose_name_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("the standard library's may be of any kind")
    library = tmp_path / "caf\udce9" / "zstd.so"
    library.parent.mkdir()
    shutil.copy(codec_libraries.candidates(Codec.ZSTD)[0], library)
    monkeypatch.setattr(codec_libraries, "candidates", lambda _: [str(library)])
    found = codec_libraries.look_for(Codec.ZSTD)
    assert found is not None
    assert found.startswith(str(library))
    assert unpacks(Codec.ZSTD)


@pytest.mark.skipif(sys.platform != "linux", reason="whether there is one is not known elsewhere")
def test_the_package_of_zstd_brings_one() -> None:
    """That of the standard library may have it linked in, out of reach."""
    if sys.version_info >= (3, 14):
        pytest.skip("the standard library's may be of any kind")
    found = codec_libraries.look_for(Codec.ZSTD)
    assert found is not None
    assert "_zstd" in found
    assert unpacks(Codec.ZSTD)


def test_only_lz4_and_zstd_have_libraries() -> None:
    for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, 5, -1):
        with pytest.raises(ValueError, match="no library"):
            _native.use_codec_library(codec, None)


LZ4_DECOY: Final = """
int LZ4_versionNumber(void) { return VERSION; }
#ifdef WHOLE
int LZ4_decompress_safe(const char *from, char *to, int size, int room) { to[0] = from[0]; return size + room; }
#endif
"""
ZSTD_DECOY: Final = """
#include <stddef.h>
unsigned ZSTD_versionNumber(void) { return VERSION; }
#ifdef WHOLE
static int context;
void *ZSTD_createDCtx(void) { return &context; }
size_t ZSTD_freeDCtx(void *freed) { return freed == &context ? 0 : 1; }
size_t ZSTD_decompressDCtx(void *used, void *to, size_t room, const void *from, size_t size) {
    return used == to || from == NULL ? 0 : 72 + 0 * room * size;
}
unsigned ZSTD_isError(size_t size) { return size == 0; }
#endif
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build a decoy with")
@pytest.mark.parametrize(("codec", "decoy", "fit"), [(Codec.LZ4, LZ4_DECOY, 10904), (Codec.ZSTD, ZSTD_DECOY, 10504)])
@pytest.mark.parametrize(
    ("flags", "version", "why"),
    [
        (["-DWHOLE"], None, "does not unpack"),
        ([], None, "no function"),
        (["-DWHOLE"], 10300, "version"),
        (["-DWHOLE"], 20000, "version"),
    ],
)
def test_a_library_that_is_not_fit(
    codec: Codec, decoy: str, fit: int, flags: list[str], version: int | None, why: str, tmp_path: Path
) -> None:
    source, library = tmp_path / "decoy.c", tmp_path / "libdecoy.so"
    source.write_text(decoy)
    gcc = ["gcc", f"-DVERSION={version or fit}", *flags, "-shared", "-fPIC", str(source), "-o", str(library)]
    assert run_to_end(gcc, seconds=200).returncode == 0
    with pytest.raises(OSError, match=why):
        _native.use_codec_library(codec, str(library))
    assert unpacks(codec), "what was used before is still used"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libzstd.so.1").write_bytes(b"no library")
    with pytest.raises(OSError, match=r"libzstd\.so\.1"):
        _native.use_codec_library(Codec.ZSTD, str(tmp_path / "libzstd.so.1"))


_FIRST_BATCH = """
import sys
from aiokc.records import Codec, unpack_run
packed, run = sys.stdin.buffer.read(), bytearray()
taken = unpack_run(memoryview(packed), run, limit=1 << 20, at_once=1 << 20, check_crcs=True)
print(taken == len(packed), sorted({"cramjam", "backports.zstd", "compression.zstd"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("codec", CODECS)
def test_where_there_is_a_library_no_package_is_imported_not_even_for_the_first_batch(codec: Codec) -> None:
    """An import takes milliseconds, of the event loop's time."""
    if codec_libraries.look_for(codec) is None:
        pytest.skip("this machine has no such library")
    packed = encode_batch([NewRecord(b"text" * 1_000)], codec=codec)
    done = subprocess.run([sys.executable, "-c", _FIRST_BATCH], input=packed, capture_output=True, timeout=200)
    assert (done.stdout.decode(), done.stderr.decode()) == (f"True []{os.linesep}", "")


def test_a_package_that_does_not_say_where_it_is_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that stands in for it may have put anything in its place."""
    for name in ("backports.zstd", "_zstd"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert codec_libraries.candidates(Codec.ZSTD) == codec_libraries._of_system("libzstd")


@pytest.mark.parametrize("codec", CODECS)
def test_macos_loads_nothing_from_the_working_directory(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the linker looks for a mere name in the working directory, too."""
    monkeypatch.setattr(sys, "platform", "darwin")
    paths = codec_libraries.candidates(codec)
    assert f"/opt/homebrew/lib/lib{codec.name.lower()}.1.dylib" in paths
    assert all(os.path.isabs(path) for path in paths)
