"""`stet run MODEL "prompt"`: one answer, for a person or for a program."""

import json

from conftest import LIMIT_S

FIELDS = {"text", "tokens", "prompt_tokens", "reused_tokens", "computed_tokens", "stop", "session",
          "timings", "memory"}
QUESTION = "Name a colour."  # the model ends its answer to this after some 20 tokens


def once(stet, model, *arguments, stdin=""):
    result = stet("run", model, *arguments, "--json", "--temp", "0", stdin=stdin)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_text_and_json_agree(stet, model):
    answer = once(stet, model, QUESTION, "-n", "16")
    assert FIELDS <= answer.keys()
    assert answer["session"] is None
    assert answer["reused_tokens"] == 0
    assert answer["computed_tokens"] == answer["prompt_tokens"] > 0
    assert "colour" in answer["text"]
    plain = stet("run", model, QUESTION, "-n", "16", "--temp", "0")
    assert plain.returncode == 0
    assert plain.stdout.rstrip("\n") == answer["text"].rstrip("\n")
    assert "\x1b" not in plain.stdout + plain.stderr


def test_prompt_from_stdin_and_file(stet, model, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(QUESTION + "\n")
    expected = once(stet, model, QUESTION, "-n", "8")
    assert once(stet, model, "-n", "8", stdin=QUESTION)["tokens"] == expected["tokens"]
    assert once(stet, model, "-n", "8", "--file", path)["tokens"] == expected["tokens"]


def test_raw_takes_the_text_as_it_is(stet, model):
    template = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging"
                f" Face<|im_end|>\n<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")
    chat = once(stet, model, QUESTION, "-n", "8")
    raw = once(stet, model, "--raw", template, "-n", "8")
    assert raw["prompt_tokens"] == chat["prompt_tokens"]
    assert raw["tokens"] == chat["tokens"]
    assert once(stet, model, "--raw", QUESTION, "-n", "1")["prompt_tokens"] < 12


def test_limits_of_an_answer(stet, model):
    cut = once(stet, model, QUESTION, "-n", "3")
    assert len(cut["tokens"]) == 3 and cut["stop"] == "length"
    ended = once(stet, model, QUESTION, "-n", "60")
    assert ended["stop"] == "end" and len(ended["tokens"]) < 60
    going = once(stet, model, QUESTION, "-n", "60", "--ignore-eos")
    assert going["stop"] == "length" and len(going["tokens"]) == 60
    word = ended["text"].split()[2]
    stopped = once(stet, model, QUESTION, "-n", "60", "--stop", word)
    assert stopped["stop"] == "stop" and word not in stopped["text"]
    assert stopped["text"] and ended["text"].startswith(stopped["text"])


def test_context_is_a_limit(stet, model):
    answer = once(stet, model, "--raw", "one two three", "--ctx", "32", "--ignore-eos")
    assert answer["stop"] == "context"
    assert answer["prompt_tokens"] + len(answer["tokens"]) <= 33
    result = stet("run", model, "--raw", "word " * 100, "--ctx", "32")
    assert result.returncode == 7 and "32" in result.stderr


def test_seed_decides_the_draws(stet, model):
    def draw(seed):
        result = stet("run", model, "Tell me something.", "--json", "--temp", "1.5", "--seed",
                      str(seed), "-n", "12")
        return json.loads(result.stdout)["tokens"]

    assert draw(7) == draw(7)
    assert any(draw(7) != draw(seed) for seed in (8, 9))


def test_nothing_is_kept_without_a_session(stet, model, tmp_path):
    once(stet, model, QUESTION, "-n", "2")
    assert not (tmp_path / "data").exists()


def test_reader_that_leaves(start, model):
    process = start("run", model, "Count to one hundred.", "--temp", "0", "--ignore-eos", "-n",
                    "2000")
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(LIMIT_S) == 9
    assert process.stderr.read() == b""
