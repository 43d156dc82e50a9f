"""Unchanged PyPI clients. Prints `LINE MESSAGE` for each message. Usage: clients.py CLIENT URL"""
import asyncio
import sys
import time
import urllib.parse

client, url = sys.argv[1:]


def say(message):
    print("LINE", message, flush=True)


async def websockets():
    import websockets

    last = ""
    while True:
        address = url.replace("http", "ws") + "?last_event_id=" + urllib.parse.quote(last)
        try:
            async with websockets.connect(address, subprotocols=["ws+meta.nchan"]) as socket:
                async for text in socket:
                    head, message = text.split("\n\n", 1)
                    last = head.splitlines()[0].removeprefix("id: ")
                    say(message)
        except (OSError, websockets.WebSocketException):
            pass
        await asyncio.sleep(0.1)


def httpx_sse():
    import httpx
    import httpx_sse

    last = ""
    with httpx.Client(timeout=None) as http:
        while True:
            try:
                headers = {"Last-Event-ID": last} if last else {}
                with httpx_sse.connect_sse(http, "GET", url, headers=headers) as source:
                    for event in source.iter_sse():
                        last = event.id
                        if event.data:
                            say(event.data)
            except httpx.HTTPError:
                pass
            time.sleep(0.1)


if client == "websockets":
    asyncio.run(websockets())
else:
    httpx_sse()
