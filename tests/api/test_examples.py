"""The programs of examples/, built beside stet."""

import subprocess

from conftest import STET


def test_branches(model, environment, tmp_path):
    program = STET.parent / "examples" / "branches"
    done = subprocess.run([program, model], cwd=tmp_path, env=environment, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "way 0:" in done.stdout and "way 1:" in done.stdout
    assert (tmp_path / "branches.state").stat().st_size > 100_000
