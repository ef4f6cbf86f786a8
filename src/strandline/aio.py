"""The clients for asyncio programs.

    async with AioProducer("localhost:9092") as producer:
        delivery = await producer.send("topic", b"value", key=b"key")
        print((await delivery).offset)

What their calls take, give and raise is in `strandline`.
"""

from strandline.client.aio import AioAdmin, AioConsumer, AioProducer

__all__ = ["AioAdmin", "AioConsumer", "AioProducer"]
