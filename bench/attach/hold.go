// As hold.py, with the collector at work: hold MIB
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

func content(number, version int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d %d ", number, version)), 200)[:600]
}

func fail(why ...any) {
	fmt.Println(append([]any{"wrong"}, why...)...)
	os.Exit(1)
}

func echo(connection net.Conn) {
	if _, err := io.Copy(connection, connection); err != nil {
		fail(err)
	}
}

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	count := mib << 20 / 640
	blocks, versions := make([][]byte, count), make([]int, count)
	for i := range blocks {
		blocks[i] = content(i, 0)
	}
	one, other := net.Pipe()
	go echo(other)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	go func() {
		connection, _ := listener.Accept()
		echo(connection)
	}()
	far, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		fail(err)
	}
	var never sync.Mutex
	never.Lock()
	go never.Lock()
	fmt.Println("ready")
	part := count / 10
	for done, at := 0, 0; ; done, at = done+1, (at+part)%count {
		for n := at; n < at+part; n++ {
			number := n % count
			if !bytes.Equal(blocks[number], content(number, versions[number])) {
				fail(number)
			}
			if number%3 == 0 {
				versions[number]++
				blocks[number] = content(number, versions[number])
			}
		}
		for _, way := range []net.Conn{one, far} {
			answer := make([]byte, 1)
			if _, err := way.Write([]byte{byte(done)}); err != nil {
				fail(err)
			}
			if _, err := io.ReadFull(way, answer); err != nil || answer[0] != byte(done) {
				fail(err, answer)
			}
		}
		fmt.Println(done)
		time.Sleep(50 * time.Millisecond)
	}
}
