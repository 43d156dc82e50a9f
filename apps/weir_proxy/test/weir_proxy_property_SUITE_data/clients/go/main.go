// A client of crypto/tls: NAME PORT.
package main

import (
	"crypto/tls"
	"log"
	"net"
	"os"
)

func main() {
	connection, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{ServerName: os.Args[1], NextProtos: []string{"h2", "http/1.1"}}
	// The recorder does not answer.
	_ = tls.Client(connection, config).Handshake()
}
