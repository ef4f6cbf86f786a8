"""Record batches: the one module that the rest of the system imports for them.

* `record_batch`       the format, its header, scanning and patching in place
* `record_validation`  what is checked of batches from producers and leaders (hot path)
* `record_codec`       building and decoding
* `record_conversion`  what workers do to batches: check, recompress; not imported here
* `compression`        decompression with a limit
"""

from __future__ import annotations

from strandline.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from strandline.protocol.record_batch import (
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
from strandline.protocol.record_codec import (
    BatchBuilder,
    CodecNotCompiled,
    Columns,
    Record,
    build_batch,
    compiled_codec,
    decode_batch,
    decode_columns,
    decode_records,
    first_record_from,
)
from strandline.protocol.record_validation import (
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
    "build_batch",
    "compiled_codec",
    "decode_batch",
    "decode_columns",
    "decode_records",
    "first_record_from",
    "read_header",
    "scan",
    "validate_fetched",
    "validate_produced",
]
