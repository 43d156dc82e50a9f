"""A server on h11 that answers each request with what it understood: `METHOD TARGET LENGTH`.

    h11_peer.py SOCKET

Listens on a unix socket until its standard input ends.
"""
import os
import socket
import sys
import threading

import h11


def serve(client):
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=65536)
    request, length = None, 0
    with client:
        while True:
            try:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = client.recv(65536)
                    if not data:
                        return
                    connection.receive_data(data)
                elif event is h11.PAUSED:
                    connection.start_next_cycle()
                elif isinstance(event, h11.Request):
                    request, length = event, 0
                elif isinstance(event, h11.Data):
                    length += len(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    answer(client, connection, request, length)
                    if connection.our_state is h11.MUST_CLOSE:
                        return
                else:
                    return
            except h11.LocalProtocolError:
                return  # CONNECT: what follows is no HTTP
            except h11.RemoteProtocolError as error:
                status = error.error_status_hint
                client.sendall(b"HTTP/1.1 %d refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
                return


def answer(client, connection, request, length):
    body = b"%s %s %d\n" % (request.method, request.target, length)
    fields = [("Content-Length", str(len(body)))]
    events = [h11.Response(status_code=200, headers=fields), h11.Data(data=body), h11.EndOfMessage()]
    client.sendall(b"".join(connection.send(event) for event in events))


def guarded(client):
    try:
        serve(client)
    except OSError:
        pass


listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(128)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()
