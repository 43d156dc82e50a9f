"""An echo server on wsproto, for weir_http_websocket_cases. Prints its port, and ends when its standard input is
closed."""
import os
import socket
import sys
import threading

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.utilities import RemoteProtocolError


def serve(client):
    connection = WSConnection(ConnectionType.SERVER)
    pieces = []
    with client:
        while data := client.recv(65536):
            try:
                connection.receive_data(data)
                for event in connection.events():
                    if isinstance(event, Request):
                        answer = connection.send(AcceptConnection(extensions=[PerMessageDeflate()]))
                    elif isinstance(event, Ping):
                        answer = connection.send(event.response())
                    elif isinstance(event, CloseConnection):
                        client.sendall(connection.send(event.response()))
                        client.shutdown(socket.SHUT_WR)
                        while client.recv(65536):
                            pass
                        return
                    elif isinstance(event, (TextMessage, BytesMessage)):
                        pieces.append(event.data)
                        if not event.message_finished:
                            continue
                        whole = type(pieces[0])().join(pieces)
                        pieces = []
                        answer = connection.send(type(event)(data=whole))
                    else:
                        continue
                    client.sendall(answer)
            except (RemoteProtocolError, OSError):
                return


def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
threading.Thread(target=accept, args=(listener,), daemon=True).start()
sys.stdin.read()
os._exit(0)
