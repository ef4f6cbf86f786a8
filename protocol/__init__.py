"""The wire and the znodes, sans-IO: bytes in, typed values out."""
