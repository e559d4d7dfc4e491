"""A GGUF file with a chat template put into it, for tests of the program."""

import struct


def with_template(model, template):
    """The file with one more key in front; tensor offsets count from the data, which moves."""
    magic, version, tensors, keys = struct.unpack("<4sIQQ", model[:24])
    name = b"tokenizer.chat_template"
    text = template.encode()
    row = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(text)) + text
    # The data's alignment is kept by a key as long as it takes.
    pad = -(len(row) + 8 + 3 + 4 + 8) % 32
    row += struct.pack("<Q", 3) + b"pad" + struct.pack("<IQ", 8, pad) + b"x" * pad
    return struct.pack("<4sIQQ", magic, version, tensors, keys + 2) + row + model[24:]
