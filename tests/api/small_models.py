"""Small model files made of others, for what no model in the cache is."""

import gguf


def _fields(reader):
    """(name, field, kind, kind of items) of what a file says, but for its architecture."""
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        yield name, field, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None


def _finish(writer, tensors, target):
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def with_text(source, target, architecture, layers=2, extra=()):
    """The first layers of a Llama-like model with its tokenizer, as another architecture whose
    tensors are the same. The text it makes is no sense, but it is text."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, architecture)
    for name, field, kind, item in _fields(reader):
        value = field.contents()
        if name.startswith("llama."):
            name = architecture + name[len("llama"):]
            if name.endswith(".block_count"):
                value = layers
        writer.add_key_value(name, value, kind, item)
    for name, value, kind in extra:
        writer.add_key_value(name, value, kind)
    return _finish(writer, [
        tensor for tensor in reader.tensors
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) < layers], target)


def with_template(source, target, template):
    """The same model with another chat template."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field, kind, item in _fields(reader):
        if name != "tokenizer.chat_template":
            writer.add_key_value(name, field.contents(), kind, item)
    writer.add_string("tokenizer.chat_template", template)
    return _finish(writer, reader.tensors, target)
