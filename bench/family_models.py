"""Models of about 300 MB with random weights, one of each family that computes differently.

Shapes are those of a real model of that size or of one layer kind of a larger one. Every matrix has
uniform weights of the width that keeps a signal's size; the text is no sense, the work is the same.
The tokenizer is another model's, so that both programs read the same tokens.
"""

import math

import gguf
import numpy as np

BLOCKS = {"q4_k": gguf.GGMLQuantizationType.Q4_K, "q8_0": gguf.GGMLQuantizationType.Q8_0,
          "q4_0": gguf.GGMLQuantizationType.Q4_0, "f16": gguf.GGMLQuantizationType.F16}
ONE_FAMILY = {"q4_0": "qwen3", "f16": "qwen3"}  # weight types of which a dense model says enough
VERSION = 1  # of what is written: part of the file's name


def q4_k(rng, rows, width, spread):
    """Blocks whose scales are all 32 and minima 7.5 steps: 16 even levels in +-spread."""
    count = rows * width // 256
    data = np.empty((count, 144), np.uint8)
    step = np.float16(spread / 240)
    data[:, 0:2] = np.array([step]).view(np.uint8)
    data[:, 2:4] = np.array([step * np.float16(7.5)], np.float16).view(np.uint8)
    data[:, 4:12] = 160  # low 6 bits 32; the upper two are those of the last four scales and minima
    data[:, 12:16] = 0
    data[:, 16:] = rng.integers(0, 256, (count, 128), np.uint8)
    return data.reshape(rows, -1)


def q8_0(rng, rows, width, spread):
    count = rows * width // 32
    data = np.empty((count, 34), np.uint8)
    data[:, 0:2] = np.array([np.float16(spread / 127)]).view(np.uint8)
    data[:, 2:] = rng.integers(-127, 128, (count, 32), np.int8).view(np.uint8)
    return data.reshape(rows, -1)


def q4_0(rng, rows, width, spread):
    count = rows * width // 32
    data = np.empty((count, 18), np.uint8)
    data[:, 0:2] = np.array([np.float16(spread / 8)]).view(np.uint8)
    data[:, 2:] = rng.integers(0, 256, (count, 16), np.uint8)
    return data.reshape(rows, -1)


def f16(rng, rows, width, spread):
    return rng.uniform(-spread, spread, (rows, width)).astype(np.float16).view(np.uint8)


MAKERS = {"q4_k": q4_k, "q8_0": q8_0, "q4_0": q4_0, "f16": f16}


class Builder:
    def __init__(self, path, architecture, kind, tokenizer):
        self.writer = gguf.GGUFWriter(path, architecture)
        self.architecture = architecture
        self.kind = kind
        self.rng = np.random.default_rng(1)
        reader = gguf.GGUFReader(tokenizer)
        for name, field in reader.fields.items():
            if not name.startswith("tokenizer.") or name == "tokenizer.chat_template":
                continue
            of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            self.writer.add_key_value(name, field.contents(), field.types[0], of)
        self.vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)

    def keys(self, **values):
        for name, value in values.items():
            name = f"{self.architecture}.{name.replace('__', '.')}"
            if isinstance(value, float):
                self.writer.add_float32(name, value)
            elif isinstance(value, bool):
                self.writer.add_bool(name, value)
            else:
                self.writer.add_uint32(name, value)

    def vector(self, name, *shape, centre=0.0, spread=0.2):
        values = centre + spread * self.rng.uniform(-1, 1, shape[::-1])
        self.writer.add_tensor(name, values.astype(np.float32))

    def norm(self, name, size):
        self.vector(name, size, centre=1.0)

    def matrix(self, name, *shape):
        """shape[0] is the input width. Widths that blocks of 256 don't fit are of 8 bits."""
        width, rows = shape[0], math.prod(shape[1:])
        kind = self.kind if width % 256 == 0 else "q8_0"
        data = MAKERS[kind](self.rng, rows, width, 1.75 / math.sqrt(width))
        self.writer.add_tensor(name, data.reshape(*shape[:0:-1], -1), raw_dtype=BLOCKS[kind])

    def ends(self, width):
        self.matrix("token_embd.weight", width, self.vocabulary)
        self.norm("output_norm.weight", width)

    def attention(self, at, width, heads, kv_heads, size):
        self.norm(at + "attn_norm.weight", width)
        self.matrix(at + "attn_q.weight", width, heads * size)
        self.matrix(at + "attn_k.weight", width, kv_heads * size)
        self.matrix(at + "attn_v.weight", width, kv_heads * size)
        self.matrix(at + "attn_output.weight", heads * size, width)

    def feed_forward(self, at, width, size, suffix=""):
        self.matrix(f"{at}ffn_gate{suffix}.weight", width, size)
        self.matrix(f"{at}ffn_up{suffix}.weight", width, size)
        self.matrix(f"{at}ffn_down{suffix}.weight", size, width)

    def experts(self, at, width, size, count):
        self.vector(at + "ffn_gate_inp.weight", width, count, spread=1.75 / math.sqrt(width))
        self.matrix(at + "ffn_gate_exps.weight", width, size, count)
        self.matrix(at + "ffn_up_exps.weight", width, size, count)
        self.matrix(at + "ffn_down_exps.weight", size, width, count)

    def mamba2(self, at, width, inner, states, heads):
        self.matrix(at + "ssm_in.weight", width, 2 * inner + 2 * states + heads)
        self.vector(at + "ssm_conv1d.weight", 4, inner + 2 * states, spread=0.9)
        self.vector(at + "ssm_conv1d.bias", inner + 2 * states)
        self.vector(at + "ssm_dt.bias", heads)
        self.vector(at + "ssm_a", 1, heads, centre=-0.5, spread=0.4)
        self.vector(at + "ssm_d", 1, heads)
        self.norm(at + "ssm_norm.weight", inner)
        self.matrix(at + "ssm_out.weight", inner, width)

    def save(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def common(b, layers, width, feed_forward, heads, kv_heads):
    b.keys(block_count=layers, context_length=8192, embedding_length=width,
           feed_forward_length=feed_forward, attention__head_count=heads,
           attention__head_count_kv=kv_heads, attention__layer_norm_rms_epsilon=1e-6,
           rope__freq_base=10000.0)
    b.ends(width)
    return [f"blk.{i}." for i in range(layers)]


def qwen3(b):
    for at in common(b, 14, 1024, 3072, 16, 8):
        b.attention(at, 1024, 16, 8, 128)
        b.norm(at + "attn_q_norm.weight", 128)
        b.norm(at + "attn_k_norm.weight", 128)
        b.norm(at + "ffn_norm.weight", 1024)
        b.feed_forward(at, 1024, 3072)
    b.keys(attention__key_length=128, attention__value_length=128)


def qwen3moe(b):
    for at in common(b, 9, 1024, 1024, 16, 4):
        b.attention(at, 1024, 16, 4, 64)
        b.norm(at + "attn_q_norm.weight", 64)
        b.norm(at + "attn_k_norm.weight", 64)
        b.norm(at + "ffn_norm.weight", 1024)
        b.experts(at, 1024, 256, 32)
    b.keys(attention__key_length=64, attention__value_length=64, expert_count=32,
           expert_used_count=4, expert_feed_forward_length=256)


def deepseek2(b):
    rank, rotated, size, heads = 512, 64, 128, 8
    for i, at in enumerate(common(b, 8, 1024, 2816, heads, 1)):
        b.norm(at + "attn_norm.weight", 1024)
        b.matrix(at + "attn_q_a.weight", 1024, 512)
        b.norm(at + "attn_q_a_norm.weight", 512)
        b.matrix(at + "attn_q_b.weight", 512, heads * (size + rotated))
        b.matrix(at + "attn_kv_a_mqa.weight", 1024, rank + rotated)
        b.norm(at + "attn_kv_a_norm.weight", rank)
        b.matrix(at + "attn_k_b.weight", size, rank, heads)
        b.matrix(at + "attn_v_b.weight", rank, size, heads)
        b.matrix(at + "attn_output.weight", heads * size, 1024)
        b.norm(at + "ffn_norm.weight", 1024)
        if i == 0:
            b.feed_forward(at, 1024, 2816)
        else:
            b.experts(at, 1024, 256, 32)
            b.feed_forward(at, 1024, 256, "_shexp")
    b.keys(attention__key_length=rank + rotated, attention__value_length=rank,
           attention__key_length_mla=size + rotated, attention__value_length_mla=size,
           attention__q_lora_rank=512, attention__kv_lora_rank=rank, rope__dimension_count=rotated,
           leading_dense_block_count=1, expert_count=32, expert_used_count=4,
           expert_shared_count=1, expert_feed_forward_length=256, expert_gating_func=1,
           expert_weights_scale=1.0)


def gemma3(b):
    for at in common(b, 14, 1024, 4096, 4, 1):
        b.attention(at, 1024, 4, 1, 256)
        b.norm(at + "attn_q_norm.weight", 256)
        b.norm(at + "attn_k_norm.weight", 256)
        b.norm(at + "post_attention_norm.weight", 1024)
        b.norm(at + "ffn_norm.weight", 1024)
        b.norm(at + "post_ffw_norm.weight", 1024)
        b.feed_forward(at, 1024, 4096)
    b.keys(attention__key_length=256, attention__value_length=256, attention__sliding_window=512)


def mamba2(b):
    for at in common(b, 32, 1024, 0, 0, 0):
        b.norm(at + "attn_norm.weight", 1024)
        b.mamba2(at, 1024, 2048, 128, 32)
    b.keys(ssm__inner_size=2048, ssm__conv_kernel=4, ssm__state_size=128, ssm__time_step_rank=32,
           ssm__group_count=1)


def falcon_h1(b):
    for at in common(b, 14, 1024, 2048, 8, 2):
        b.attention(at, 1024, 8, 2, 128)
        b.mamba2(at, 1024, 1536, 128, 24)
        b.norm(at + "ffn_norm", 1024)  # this name has no suffix
        b.feed_forward(at, 1024, 2048)
    b.keys(attention__key_length=128, attention__value_length=128, ssm__inner_size=1536,
           ssm__conv_kernel=4, ssm__state_size=128, ssm__time_step_rank=24, ssm__group_count=1,
           rope__dimension_count=128)


# What is special about each, and who makes it.
FAMILIES = {
    "qwen3": ("dense", qwen3),
    "qwen3moe": ("mixture of experts", qwen3moe),
    "deepseek2": ("latent attention, experts", deepseek2),
    "gemma3": ("sliding windows", gemma3),
    "mamba2": ("recurrent", mamba2),
    "falcon-h1": ("attention beside Mamba-2", falcon_h1),
}


def make(folder, name, kind, tokenizer):
    """The path of the model; made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{kind}-{VERSION}.gguf"
    if not path.is_file():
        part = path.with_suffix(".part")
        builder = Builder(part, name, kind, tokenizer)
        FAMILIES[name][1](builder)
        builder.save()
        part.rename(path)
    return path
