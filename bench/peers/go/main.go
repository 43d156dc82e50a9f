// weir-go serves with Go's net and net/http, and with gorilla/websocket, as their documentation shows. It is a peer
// of the measured servers.
//
//	weir-go echo|http|websocket --port PORT
//
// It prints "ready PORT" when it listens on 127.0.0.1. GOMAXPROCS sets the number of cores.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
)

func main() {
	if len(os.Args) < 2 {
		fail("echo, http, websocket or version is needed")
	}
	flags := flag.NewFlagSet("weir-go", flag.ExitOnError)
	port := flags.Int("port", 0, "port to listen on, 0 takes a free one")
	// With ExitOnError, Parse exits instead of returning an error.
	_ = flags.Parse(os.Args[2:])

	var serve func(net.Listener) error
	switch os.Args[1] {
	case "echo":
		serve = echo
	case "http":
		serve = hello
	case "websocket":
		serve = messages
	case "version":
		fmt.Println(runtime.Version())
		return
	default:
		fail(fmt.Sprintf("%s: echo, http, websocket or version is needed", os.Args[1]))
	}
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		fail(err.Error())
	}
	fmt.Printf("ready %d\n", listener.Addr().(*net.TCPAddr).Port)
	fail(serve(listener).Error())
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, "weir-go:", reason)
	os.Exit(1)
}

// echo runs a goroutine for each connection. It avoids io.Copy, which would splice between sockets.
func echo(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 4096)
			for {
				count, err := connection.Read(buffer)
				if count > 0 {
					if _, err := connection.Write(buffer[:count]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

func hello(listener net.Listener) error {
	return http.Serve(listener, http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		// An error means that the client has left.
		_, _ = io.WriteString(response, "hello world!")
	}))
}
