"""Record batches: the one module that the rest of the system imports for them.

* `batch`       the format, its header, scanning and patching in place
* `validation`  what is checked of batches from producers and leaders (hot path)
* `codec`       building and decoding
* `conversion`  what workers do to batches: check, recompress; not imported here
* `columnar`    decoding into columns of positions, with numpy; not imported here
* `framing`     what stands around keys and values, for many records at once, with numpy; not imported here
* `compression`        decompression with a limit
"""

from __future__ import annotations

from strandline.protocol.records.batch import (
    CREATE_TIME,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    MIN_BATCH_LENGTH,
    BatchHeader,
    InvalidBatch,
    assign_offset,
    read_header,
    scan,
)
from strandline.protocol.records.codec import (
    BatchBuilder,
    CodecNotCompiled,
    Columns,
    Record,
    assign_producer,
    build_batch,
    compiled_codec,
    compiled_records,
    decode_batch,
    decode_columns,
    decode_records,
    first_record_from,
)
from strandline.protocol.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from strandline.protocol.records.validation import (
    MAX_AT_FAULT,
    READER_SLACK_BYTES,
    ProducedBatch,
    validate_fetched,
    validate_produced,
)

__all__ = [
    "CREATE_TIME",
    "HEADER_BYTES",
    "LENGTH_PREFIX_BYTES",
    "LOG_APPEND_TIME",
    "MAGIC",
    "MAX_AT_FAULT",
    "MAX_DECOMPRESSED_BYTES",
    "MIN_BATCH_LENGTH",
    "READER_SLACK_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "CodecNotCompiled",
    "Columns",
    "InvalidBatch",
    "ProducedBatch",
    "Record",
    "assign_offset",
    "assign_producer",
    "build_batch",
    "compiled_codec",
    "compiled_records",
    "decode_batch",
    "decode_columns",
    "decode_records",
    "first_record_from",
    "read_header",
    "scan",
    "validate_fetched",
    "validate_produced",
]
