"""A client on the package `websockets`: echoes of messages, a ping, then a close. Prints `ok`.
Usage: websockets_client.py PORT"""
import asyncio
import sys

import websockets


async def main():
    async with websockets.connect(
        f"ws://127.0.0.1:{sys.argv[1]}/websocket",
        max_size=None,
        open_timeout=None,
        ping_interval=None,
        close_timeout=600,
    ) as socket:
        assert any(extension.name == "permessage-deflate" for extension in socket.extensions)
        for message in ["Hello", "κόσμε", "x" * 100000, "", b"\xff\x00", b"y" * 300000]:
            await socket.send(message)
            assert await socket.recv() == message
        await (await socket.ping(b"are you there?"))
        await socket.send(iter(["in ", "pieces"]))
        assert await socket.recv() == "in pieces"
    assert socket.close_code == 1000, socket.close_code
    print("ok")


asyncio.run(main())
