"""Messages of Chakra's schema, by its own field numbers."""


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    data = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    """An AttributeProto: int64_val, bool_val, string_val or int64_list."""
    if isinstance(value, bool):
        body = number(27, value)
    elif isinstance(value, int):
        body = number(9, value)
    elif isinstance(value, str):
        body = text(29, value)
    else:
        body = text(10, text(1, b"".join(map(varint, value))))
    return text(10, text(1, name) + body)


def node(identity, kind, start=0, duration=0, name="node", **attributes):
    body = (number(1, identity) if identity else b"") + text(2, name) + number(3, kind)
    body += (number(6, start) if start else b"") + (number(7, duration) if duration else b"")
    return body + b"".join(attribute(key, value) for key, value in attributes.items())


def stream(*messages, metadata=None):
    return b"".join(
        varint(len(message)) + message
        for message in (text(1, "0.0.4") if metadata is None else metadata, *messages)
    )
