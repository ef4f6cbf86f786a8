"""A question over HTTP to an admin port, for commands: synchronous, bounded in time and size."""

from __future__ import annotations

import http.client

from strandline.runtime.network import Address, CannotConnect

MAX_BODY_BYTES = 2**20


def get(address: Address, path: str, timeout_s: float, max_body_bytes: int = MAX_BODY_BYTES) -> tuple[int, bytes]:
    """(status code, body). CannotConnect where nobody answers in HTTP within `timeout_s` per step, or with more than
    `max_body_bytes`."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(max_body_bytes + 1)
    except (OSError, http.client.HTTPException) as error:
        raise CannotConnect(f"nobody answers at http://{address}{path}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if len(body) > max_body_bytes:
        raise CannotConnect(f"http://{address}{path} answers with more than {max_body_bytes} bytes")
    return response.status, body
