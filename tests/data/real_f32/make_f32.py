#!/usr/bin/env python3
"""Write a GGUF file with every tensor of another dequantised to f32, the metadata unchanged.

usage: make_f32.py SOURCE.gguf TARGET.gguf      (needs the PyPI packages numpy and gguf)

Quantised products round their inputs to 8 bits, which turns a difference of one part in ten million
into one of a whole rounding step a few layers on. Without them a comparison can be strict.
"""
import pathlib
import sys

import gguf
import numpy as np


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    reader = gguf.GGUFReader(source)
    part = target.with_suffix(".part")
    writer = gguf.GGUFWriter(part, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=element)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(target)


if __name__ == "__main__":
    main()
