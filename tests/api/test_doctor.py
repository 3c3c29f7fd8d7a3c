"""`stet doctor`: each fault that it looks for is made, and named."""

import json
import os
import shutil
import socket

import pytest


@pytest.fixture
def doctor(stet, tmp_path):
    """Exit status and findings by subject; its store and port are the test's own."""

    def examine(*arguments, store=None):
        result = stet("doctor", "--json", "--store", store or tmp_path / "store", "--port", "0",
                      *arguments)
        report = json.loads(result.stdout)
        assert report["healthy"] == (result.returncode == 0), result
        assert report["healthy"] == all(item["outcome"] != "fail" for item in report["checks"])
        assert all(item.get("advice") for item in report["checks"] if item["outcome"] != "ok")
        return {item["subject"]: item for item in report["checks"]}

    return examine


@pytest.fixture
def store(stet, model, tmp_path):
    """With one session."""
    path = tmp_path / "store"
    result = stet("run", model, "Hello", "-n", "2", "--session", "kept", "--store", path)
    assert result.returncode == 0, result.stderr
    return path


def test_a_fit_machine(doctor, store, model):
    found = doctor(model)
    assert {"version", "cpu", "threads", "memory", "store", "permissions", "file system", "disk",
            "catalogue", "port", "model", "architecture", "weights", "state", "tokenizer",
            "chat template", "identity"} <= set(found)
    assert not [item for item in found.values() if item["outcome"] == "fail"]
    assert found["permissions"]["outcome"] == "ok"
    assert found["catalogue"]["text"] == "1 session"
    assert "llama" in found["architecture"]["text"]
    # Nothing of it stays.
    assert not [path for path in store.iterdir() if "doctor" in path.name]


def test_a_store_that_is_not_there_yet_is_not_made(doctor, tmp_path):
    found = doctor()
    assert found["store"]["outcome"] == "ok" and "made when first used" in found["store"]["text"]
    assert "catalogue" not in found and not (tmp_path / "store").exists()


def test_a_store_that_others_may_read(doctor, store):
    store.chmod(0o755)
    found = doctor()["permissions"]
    assert found["outcome"] == "warn" and "755" in found["text"]
    assert found["advice"] == f"chmod 700 {store}"


def test_a_folder_that_cannot_be_written(doctor, tmp_path):
    """Root may write anywhere but into /proc."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    found = doctor(store="/proc/stet" if os.geteuid() == 0 else folder)["store"]
    assert found["outcome"] == "fail" and "--store" in found["advice"]


def test_a_damaged_catalogue(doctor, store):
    catalogue = store / "catalogue.sqlite"
    data = bytearray(catalogue.read_bytes())
    data[:4096] = b"\xff" * 4096
    catalogue.write_bytes(data)
    found = doctor()["catalogue"]
    assert found["outcome"] == "fail" and "catalogue" in found["text"]


@pytest.mark.parametrize("keep", [0, 4, 1000, 4_000_000])
def test_a_model_that_was_cut(doctor, model, tmp_path, keep):
    path = tmp_path / "cut.gguf"
    with open(model, "rb") as source:
        path.write_bytes(source.read(keep))
    found = doctor(path)["model"]
    assert found["outcome"] == "fail" and str(path) in found["text"]


def test_a_model_without_a_usable_header(doctor, small_model, tmp_path):
    path = tmp_path / "damaged.gguf"
    shutil.copy(small_model, path)
    with open(path, "r+b") as file:
        file.seek(16)
        file.write(b"\xff" * 8)  # the number of its metadata
    assert doctor(path)["model"]["outcome"] == "fail"
    assert doctor(tmp_path / "none.gguf")["model"]["outcome"] == "fail"


def test_a_model_without_text_is_said_to_be_so(doctor, small_model):
    assert doctor(small_model)["tokenizer"]["outcome"] == "fail"


def test_more_state_than_memory(doctor, model):
    found = doctor(model, "-np", "16", "-c", "8192", "--ram", "64")["state"]
    assert found["outcome"] == "warn" and "16" in found["text"]


def test_a_port_in_use(doctor):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctor("--port", str(port))["port"]
    assert found["outcome"] == "fail" and str(port) in found["text"]
    assert doctor("--port", str(port))["port"]["outcome"] == "ok"
    assert doctor("--host", "not an address")["port"]["outcome"] == "fail"


def test_more_threads_than_cores(doctor):
    assert doctor("-t", "500")["threads"]["outcome"] == "warn"


def test_for_people(stet, tmp_path):
    (tmp_path / "store").mkdir(mode=0o755)
    result = stet("doctor", "--store", tmp_path / "store", "--port", "0")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert all(line.startswith(("ok  ", "warn", "fail", "  ")) for line in lines)
    assert any(line.lstrip().startswith("-> chmod 700") for line in lines)
    result = stet("doctor", tmp_path / "none.gguf", "--port", "0")
    assert result.returncode != 0 and "fail" in result.stdout
