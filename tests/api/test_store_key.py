"""Stores that are encrypted, by the command line and by the server."""

import json

import pytest

from server_process import launch

QUESTION = "My cat is called Zibberdix. What is her name?"
INVALID, INCOMPATIBLE = 2, 6


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("0123456789abcdef" * 4 + "\n")
    path.chmod(0o600)
    return path


def test_a_chat_in_an_encrypted_store(chat, stet, key_file, tmp_path):
    store = tmp_path / "store"
    with_key = ("--store-key-file", key_file)
    [plain] = chat("plain", QUESTION, store="other")
    [first] = chat("s", QUESTION, arguments=with_key)
    assert first["tokens"] == plain["tokens"] and first["durable"]
    [again] = chat("s", "And mine?", arguments=with_key)
    assert again["resume"]["restored_tokens"] == again["resume"]["tokens"] > 0

    files = [path for path in store.rglob("*") if path.is_file()]
    assert not any(b"Zibberdix" in path.read_bytes() for path in files)
    others = [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
    assert any(b"Zibberdix" in path.read_bytes() for path in others)

    listed = stet("session", "ls", "--store", store)
    assert listed.returncode == 0 and "s" in listed.stdout.split()
    for arguments in (("show", "s"), ("export", "s", tmp_path / "x"), ("verify",)):
        result = stet("session", *arguments, "--store", store)
        assert result.returncode == INCOMPATIBLE, arguments
        assert "--store-key-file" in result.stderr and len(result.stderr.splitlines()) == 1
    shown = stet("session", "show", "s", "--store", store, *with_key)
    assert shown.returncode == 0 and "Zibberdix" in shown.stdout


def test_a_file_made_of_it_is_plain_and_says_so(chat, stet, key_file, tmp_path):
    chat("s", QUESTION, arguments=("--store-key-file", key_file))
    path = tmp_path / "s.stet"
    made = stet("session", "export", "s", path, "--store", tmp_path / "store", "--store-key-file",
                key_file)
    assert made.returncode == 0 and "not encrypted" in made.stderr
    assert b"Zibberdix" in path.read_bytes()
    taken = stet("session", "import", path, "--store", tmp_path / "plain")
    assert taken.returncode == 0, taken.stderr


def test_wrong_keys_are_named(chat, stet, key_file, environment, tmp_path):
    chat("s", QUESTION, arguments=("--store-key-file", key_file))

    def show(code, *words):
        result = stet("session", "show", "s", "--store", tmp_path / "store", "--store-key-file",
                      key_file)
        assert result.returncode == code, result.stderr
        assert all(word in result.stderr for word in words)
        assert len(result.stderr.splitlines()) <= 1

    key = key_file.read_text()
    key_file.write_text("f" * 64)
    show(INCOMPATIBLE, "another key")
    key_file.write_text("f" * 63)
    show(INVALID, str(key_file), "64")
    key_file.write_text(key)
    key_file.chmod(0o644)
    show(INVALID, str(key_file), "chmod 600")
    key_file.chmod(0o600)
    show(0)
    environment["STET_STORE_KEY"] = key.strip()
    show(INVALID, "twice")


def test_doctor_tries_the_key(chat, stet, key_file, environment, tmp_path):
    chat("s", QUESTION, arguments=("--store-key-file", key_file))
    environment["STET_STORE_KEY"] = "f" * 64
    wrong = stet("doctor", "--store", tmp_path / "store")
    assert wrong.returncode != 0 and "another key" in wrong.stdout
    environment["STET_STORE_KEY"] = key_file.read_text().strip()
    assert "1 session, encrypted" in stet("doctor", "--store", tmp_path / "store").stdout


def test_a_server_with_tenants(model, key_file, environment, tmp_path):
    environment = dict(environment, STET_STORE_KEY_FILE=str(key_file))
    store = tmp_path / "store"
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
            "max_tokens": 12, "session_id": "s"}
    said = {}
    for _ in range(2):
        server = launch(model, store, environment, "--api-key", "one,two")
        try:
            for key in ("one", "two"):
                headers = {"Authorization": f"Bearer {key}"}
                said.setdefault(key, []).append(
                    server.post("/v1/chat/completions", body, headers=headers))
            assert server.stop() == 0
        finally:
            server.kill()
    for first, second in said.values():
        assert first["stet"]["durable"]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 12
    files = [path for path in store.rglob("*") if path.is_file()]
    assert sum(path.name == "catalogue.sqlite" for path in files) == 2
    assert not any(b"Zibberdix" in path.read_bytes() for path in files)


def test_the_key_is_in_no_output(stet, key_file, environment):
    environment["STET_STORE_KEY"] = key_file.read_text().strip()
    shown = stet("config", "show", "--json")
    assert shown.returncode == 0 and environment["STET_STORE_KEY"] not in shown.stdout
    assert any("store" in name for name in json.dumps(json.loads(shown.stdout)).split('"'))
