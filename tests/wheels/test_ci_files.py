"""The files for the public repository's CI: what they mean is checked against the schemas; what they name is there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from check_jsonschema import main as check_jsonschema  # type: ignore[import-untyped]
from click.testing import CliRunner, Result

from tests.suite.other_pythons import LEFT_OUT
from tests.suite.peers.without_peers import PEERS

ROOT: Final = Path(__file__).parent.parent.parent
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job.get("steps", [])]


def checked(schema: str, *files: Path) -> Result:
    return CliRunner().invoke(check_jsonschema, ["--builtin-schema", schema, *map(str, files)])


def test_all_are_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"test", "wheels", "docs", "release"}


def test_they_are_of_their_schemas() -> None:
    done = checked("vendor.github-workflows", *WORKFLOWS)
    assert done.exit_code == 0, done.output
    done = checked("vendor.dependabot", ROOT / ".github" / "dependabot.yml")
    assert done.exit_code == 0, done.output


def test_the_schema_finds_what_is_wrong(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert checked("vendor.github-workflows", wrong).exit_code == 1


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_few(workflow: Path) -> None:
    for line in re.findall(r"uses: (.*)", workflow.read_text()):
        assert line.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    written = yaml.safe_load(workflow.read_text())
    assert written["permissions"] in ({}, {"contents": "read"})
    assert all("timeout-minutes" in job for job in written["jobs"].values() if "steps" in job)


def test_what_they_run_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    commands = [step["run"] for workflow in WORKFLOWS for step in steps(workflow) if "run" in step]
    used = {word for command in commands for word in re.findall(r"make ([a-z-]+)", command)}
    assert {"test", "test-pythons", "docs"} <= used <= targets
    for command in commands:
        for path in re.findall(r"(?:tests|wheels)/\S*", command):
            assert (ROOT / path).exists(), path


def files_of(command: str) -> list[Path]:
    """The files of Python that a command of pytest loads before the first test, those beside the tests too."""
    files = {ROOT / "tests" / "conftest.py"}
    for path in re.findall(r"(?<!--deselect )\btests/\S*", command):
        files |= set((ROOT / path).rglob("*.py")) if (ROOT / path).is_dir() else {ROOT / path}
    return sorted(files)


def imported(file: Path) -> Iterator[str]:
    """What the file needs to be loaded: what is in a function or under a condition is not among it."""
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Import):
            yield from (name.name.partition(".")[0] for name in statement.names)
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            yield str(statement.module).partition(".")[0]


@pytest.mark.parametrize("job", ["elsewhere", "free-threaded"])
def test_a_job_installs_what_its_tests_import(job: str) -> None:
    written = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"][job]
    install, run = (step["run"] for step in written["steps"] if "run" in step)
    assert "--without-peers" in run
    needed = [re.split(r"[>=;]", one)[0] for one in PROJECT["project"]["dependencies"]]
    installed = {name.partition(".")[0].replace("-", "_") for name in [*needed, *install.split()]}
    there = sys.stdlib_module_names | installed | PEERS | {"tests", "benchmarks", "aiokc"}
    files = files_of(run)
    assert len(files) > 20
    assert [(str(file.relative_to(ROOT)), name) for file in files for name in imported(file) if name not in there] == []
    # ... and leaves out, of what it would run, what needs more than that
    left_out = {path for path in LEFT_OUT if ROOT / path in files}
    assert left_out == set(re.findall(r"--deselect (\S+)", run))


def test_the_oldest_packages_are_all_that_are_allowed() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    (oldest,) = (one["oldest"] for one in jobs["elsewhere"]["strategy"]["matrix"]["include"] if "oldest" in one)
    bounds = [one.partition(";")[0].replace(">=", "==") for one in PROJECT["project"]["dependencies"]]
    assert sorted(oldest.split()) == sorted(bounds)


def test_only_the_release_may_write_and_it_needs_the_tests() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert release["publish"]["needs"] == ["version", "test", "wheels"]
    assert release["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert release["publish"]["environment"]["name"] == "pypi"
    assert "password" not in str(release)


def test_a_tag_that_is_not_the_version_is_no_release() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    (command,) = (step["run"] for step in release["version"]["steps"] if "run" in step)

    def code(tag: str) -> int:
        environment = {"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag}
        return subprocess.run(["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True).returncode

    version = PROJECT["project"]["version"]
    assert code(f"v{version}") == 0
    assert [code(tag) for tag in ("v9.9.9", f"v{version}.1", f"{version}rc1", "v")] == [1, 1, 1, 1]


def test_wheels_are_built_for_what_the_classifiers_name() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]
    named = re.findall(r"Python :: 3\.(\d+)", " ".join(PROJECT["project"]["classifiers"]))
    built = settings["build"].split()
    assert [f"cp3{minor}-*" for minor in named] == [one for one in built if not one.endswith("t-*")]
    assert {"cp314t-*", "cp315t-*"} <= set(built)
    for system in ("linux", "macos", "windows"):
        assert settings[system]["repair-wheel-command"][-1] == "python {project}/wheels/sbom.py {dest_dir}"
    assert (ROOT / "wheels" / "check.py").exists()
