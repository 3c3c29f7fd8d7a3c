"""Slot files of `stet serve`: llama-server's save, restore and erase, on every kind of memory.

The models are small, with random weights, and are spoken to in token ids. Of each kind one: dense
attention, sliding window, recurrent, hybrid.
"""

import os
import random
import resource
import subprocess

import pytest

from conftest import ROOT, STET
from server_process import launch

KINDS = {"dense": "llama-dense", "window": "gemma3-dense", "recurrent": "mamba-dense",
         "hybrid": "falcon-h1-dense"}
VOCABULARY = 128


def tokens(seed, count):
    return [random.Random(seed * 1000 + i).randrange(4, VOCABULARY) for i in range(count)]


PROMPT = tokens(1, 150)
TAIL = tokens(2, 20)
OTHER = tokens(3, 120)


@pytest.fixture
def serve(speakable, tmp_path, environment):
    """Starts a server with two slots for a kind of model; kills what still runs at the end."""
    slots = tmp_path / "slots"
    slots.mkdir()
    servers = []

    def begin(kind="dense", *arguments, **options):
        server = launch(speakable(KINDS.get(kind, kind)), tmp_path / "store", environment, "-np", 2,
                        "-c", 1024, "--slot-save-path", slots, "--durability", "none", *arguments,
                        **options)
        server.folder = slots
        servers.append(server)
        return server

    yield begin
    for server in servers:
        server.kill()


def act(server, slot, action, name=None):
    body = "" if name is None else {"filename": name}
    return server.request("POST", f"/slots/{slot}?action={action}", body)


def save(server, slot, name):
    status, answer = act(server, slot, "save", name)
    assert status == 200, answer
    assert answer["id_slot"] == slot and answer["filename"] == name
    assert answer["n_written"] == (server.folder / name).stat().st_size
    assert answer["timings"]["save_ms"] >= 0
    return answer


def restore(server, slot, name):
    status, answer = act(server, slot, "restore", name)
    assert status == 200, answer
    assert answer["id_slot"] == slot and answer["filename"] == name
    assert answer["n_read"] == (server.folder / name).stat().st_size
    return answer


def go_on(server, slot, prompt, count=32):
    answer = server.complete(prompt, count, id_slot=slot, ignore_eos=True)
    return answer["tokens"], answer["timings"]["prompt_n"]


def same(answer, expected):
    """The tokens, with no more computed: the server may know a longer prefix meanwhile."""
    return answer[0] == expected[0] and answer[1] <= expected[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_slot_goes_on_as_if_nothing_had_been(serve, kind):
    """bugs.md: restores that report every token and then compute all of them again."""
    server = serve(kind)
    go_on(server, 0, PROMPT, 0)
    assert save(server, 0, "a")["n_saved"] == len(PROMPT)
    expected, computed = go_on(server, 0, PROMPT + TAIL)
    assert computed == len(TAIL)
    server.stop()
    server = serve(kind)
    go_on(server, 1, OTHER)
    assert restore(server, 1, "a")["n_restored"] == len(PROMPT)
    assert go_on(server, 1, PROMPT + TAIL) == (expected, len(TAIL))
    # A tail that leaves the prompt before its end: what can be reused is, the rest is explained.
    status, _ = act(server, 1, "erase")
    assert status == 200
    restore(server, 1, "a")
    answer = server.complete(PROMPT[:-10] + TAIL, 4, id_slot=1)
    stet = answer["stet"]
    assert stet["matched_tokens"] == len(PROMPT) - 10
    assert stet["reused_tokens"] == stet["matched_tokens"] or str(stet["reused_tokens"]) in \
        stet["reason"]


@pytest.mark.parametrize("length", [31, 32, 33, 67, 128])
def test_window_wrapped_or_not(serve, length):
    server = serve("window")  # its window is 32 tokens
    go_on(server, 0, PROMPT[:length], 0)
    save(server, 0, "a")
    expected = go_on(server, 0, PROMPT[:length] + TAIL)
    server.stop()
    server = serve("window")
    go_on(server, 0, OTHER)
    restore(server, 0, "a")
    assert go_on(server, 0, PROMPT[:length] + TAIL) == expected
    assert expected[1] == len(TAIL)


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_a_damaged_file_harms_nothing(serve, kind):
    """bugs.md: a refused restore that leaves something behind, or takes the slot's content away."""
    server = serve(kind)
    go_on(server, 0, PROMPT, 0)
    go_on(server, 1, OTHER, 0)
    save(server, 0, "a")
    save(server, 1, "b")
    expected = [go_on(server, 0, PROMPT + TAIL), go_on(server, 1, OTHER + TAIL)]
    data = (server.folder / "a").read_bytes()
    for part in (0.25, 0.5, 0.75, 0.99):
        at = int(len(data) * part)
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]
        for bad in (flipped, data[:at]):
            (server.folder / "bad").write_bytes(bad)
            restore(server, 0, "a")
            restore(server, 1, "b")
            status, answer = act(server, 1, "restore", "bad")
            assert status == 400 and "restore" in answer["error"]["message"]
            assert same(go_on(server, 1, OTHER + TAIL), expected[1])
            assert same(go_on(server, 0, PROMPT + TAIL), expected[0])
    for junk in (b"", b"x", b"stet.sta", b"ggsq" + bytes(100), os.urandom(5000), data + b"x"):
        (server.folder / "bad").write_bytes(junk)
        assert act(server, 1, "restore", "bad")[0] == 400
    assert act(server, 1, "restore", "missing")[0] == 400
    restore(server, 1, "b")
    assert same(go_on(server, 1, OTHER + TAIL), expected[1])


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_slot(serve, kind):
    server = serve(kind)
    assert save(server, 0, "empty")["n_saved"] == 0
    assert restore(server, 0, "empty")["n_restored"] == 0
    expected = go_on(server, 0, PROMPT, 8)
    assert expected[1] == len(PROMPT)
    restore(server, 0, "empty")
    assert server.get("/slots")[1][0]["n_state_tokens"] == 0
    assert go_on(server, 0, PROMPT, 8)[0] == expected[0]
    assert act(server, 0, "erase")[1]["n_erased"] >= len(PROMPT)
    assert act(server, 0, "erase")[1]["n_erased"] == 0


@pytest.mark.parametrize("name", ["llama-dense", "gemma3-dense", "mamba-dense", "falcon-h1-dense"])
def test_files_of_the_peer(serve, name):
    """llama.cpp's sequence files restore into a slot."""
    data = (ROOT / "tests/data/legacy" / f"{name}.seq").read_bytes()
    server = serve(name)
    (server.folder / "theirs").write_bytes(data)
    count = restore(server, 0, "theirs")["n_restored"]
    assert count == int.from_bytes(data[8:12], "little")
    prompt = [int.from_bytes(data[12 + 4 * i:16 + 4 * i], "little") for i in range(count)]
    resumed, computed = go_on(server, 0, prompt + TAIL, 16)
    assert computed == len(TAIL)
    fresh = server.complete(prompt + TAIL, 16, cache_prompt=False, ignore_eos=True)
    assert fresh["tokens"] == resumed
    (server.folder / "cut").write_bytes(data[:len(data) // 2])
    assert act(server, 0, "restore", "cut")[0] == 400
    assert go_on(server, 0, prompt + TAIL, 16)[0] == resumed


def test_another_model_is_refused_by_name(serve, speakable, tmp_path):
    server = serve("dense")
    go_on(server, 0, PROMPT, 0)
    save(server, 0, "a")
    server.stop()
    path = speakable("llama-dense")
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1  # one bit of one weight
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(data)
    other = launch(changed, tmp_path / "store2", None, "-np", 2, "-c", 1024, "--slot-save-path",
                   server.folder)
    status, answer = act(other, 0, "restore", "a")
    assert status == 409 or status == 400
    assert "model" in answer["error"]["message"] or "fingerprint" in answer["error"]["message"]
    other.stop()
    moved = tmp_path / "moved.gguf"
    moved.write_bytes(path.read_bytes())
    same = launch(moved, tmp_path / "store3", None, "-np", 2, "-c", 1024, "--slot-save-path",
                  server.folder)
    same.folder = server.folder
    restore(same, 0, "a")
    assert same.stop() == 0


def test_names_stay_in_the_directory(serve, tmp_path):
    server = serve()
    go_on(server, 0, PROMPT, 0)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for name in ("../victim", "/etc/passwd", "a/b", "a\\b", "..", ".", ".a", "", "a\n", "x" * 256,
                 "a:b", " a", "a ", "a."):
        for action in ("save", "restore"):
            status, answer = act(server, 0, action, name)
            assert status == 400 and "filename" in answer["error"]["message"], (name, answer)
    (server.folder / "link").symlink_to(victim)
    assert act(server, 0, "restore", "link")[0] == 400
    save(server, 0, "link")  # takes the link's place
    assert not (server.folder / "link").is_symlink()
    os.link(victim, server.folder / "hard")
    save(server, 0, "hard")
    assert victim.read_bytes() == b"precious"
    status, answer = server.request("POST", "/slots/0?action=save", {"filename": 3})
    assert status == 400 and "filename" in answer["error"]["message"]
    assert server.request("POST", "/slots/0?action=save", {})[0] == 400
    assert server.request("POST", "/slots/0?action=sing", {"filename": "a"})[0] == 400
    assert sorted(path.name for path in server.folder.iterdir()) == ["hard", "link"]


def test_a_full_disk_keeps_the_old_file(serve, tmp_path):
    """The file size is limited, so that a longer save than the last does not fit."""
    server = serve("dense")
    go_on(server, 0, PROMPT[:40], 0)
    save(server, 0, "a")
    good = (server.folder / "a").read_bytes()
    expected = go_on(server, 0, PROMPT[:40] + TAIL)
    go_on(server, 0, PROMPT + OTHER, 0)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (len(good) + 4096, -1))
    status, answer = act(server, 0, "save", "a")
    assert status in (500, 507) and "save" in answer["error"]["message"]
    assert [path.name for path in server.folder.iterdir()] == ["a"]
    assert (server.folder / "a").read_bytes() == good
    restore(server, 0, "a")
    assert same(go_on(server, 0, PROMPT[:40] + TAIL), expected)


def test_ids_out_of_range(serve):
    server = serve()
    go_on(server, 1, PROMPT, 0)
    save(server, 1, "a")
    for slot in ("2", "-1", "x", "4294967296", "1e0", "%31%30", ""):
        for action in ("save", "restore", "erase"):
            assert act(server, slot, action, "a")[0] in (400, 404)
    assert server.get("/slots")[1][1]["n_state_tokens"] == len(PROMPT)


def auth(key):
    return {"Authorization": f"Bearer {key}"}


def test_files_of_a_tenant_are_its_own(serve, tmp_path):
    server = serve("dense", "--api-key", "alpha,beta")

    def act_as(key, action, name):
        return server.request("POST", f"/slots/0?action={action}", {"filename": name},
                              headers=auth(key))

    def fill(key, prompt):
        server.post("/completion", {"prompt": prompt, "n_predict": 0, "id_slot": 0},
                    headers=auth(key))

    def folders():
        return sorted(path.name for path in server.folder.iterdir())

    assert len(folders()) == 2 and all(name.startswith("tenant-") for name in folders())
    assert all((server.folder / name).stat().st_mode & 0o777 == 0o700 for name in folders())
    (server.folder / "old").write_bytes(b"of the time before")
    fill("alpha", PROMPT)
    assert act_as("alpha", "save", "mine")[0] == 200
    for name in ("mine", "old", f"{folders()[-1]}/mine", folders()[-1], folders()[-2]):
        status, answer = act_as("beta", "restore", name)
        assert status in (400, 404), answer
    # The same name is another file.
    fill("beta", OTHER)
    assert act_as("beta", "save", "mine")[0] == 200
    assert sorted(len(list((server.folder / name).iterdir())) for name in folders()[-2:]) == [1, 1]
    status, answer = act_as("alpha", "restore", "mine")
    assert status == 200 and answer["n_restored"] == len(PROMPT)
    status, answer = act_as("beta", "restore", "mine")
    assert status == 200 and answer["n_restored"] == len(OTHER)
    # They are there after a restart, also when the keys come in another order.
    assert server.stop() == 0
    server = serve("dense", "--api-key", "beta,alpha")
    assert act_as("alpha", "restore", "mine")[1]["n_restored"] == len(PROMPT)


def test_one_key_needs_no_folder(serve):
    server = serve("dense", "--api-key", "alone")
    server.post("/completion", {"prompt": PROMPT, "n_predict": 0, "id_slot": 0},
                headers=auth("alone"))
    status, answer = server.request("POST", "/slots/0?action=save", {"filename": "a"},
                                    headers=auth("alone"))
    assert status == 200, answer
    assert [path.name for path in server.folder.iterdir()] == ["a"]


def test_a_link_in_place_of_a_tenants_folder_is_refused(serve, speakable, tmp_path):
    server = serve("dense", "--api-key", "alpha,beta")
    folder = next(server.folder.iterdir())
    assert server.stop() == 0
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    result = subprocess.run([STET, "serve", speakable(KINDS["dense"]), "--port", "0",
                             "--durability", "none", "--slot-save-path", server.folder,
                             "--api-key", "alpha,beta"], capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 2 and folder.name in result.stderr
