package main

import (
	"net"
	"net/http"

	"github.com/gorilla/websocket"
)

// messages sends back every message of a WebSocket.
func messages(listener net.Listener) error {
	upgrader := websocket.Upgrader{}
	return http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		connection, err := upgrader.Upgrade(response, request, nil)
		if err != nil {
			// Upgrade has already answered with the error.
			return
		}
		defer connection.Close()
		for {
			kind, message, err := connection.ReadMessage()
			if err != nil {
				return
			}
			if err := connection.WriteMessage(kind, message); err != nil {
				return
			}
		}
	}))
}
