// Memory of C's malloc and of Go's heap, filled by goroutines that call C all the time, and checked. With cgo it is a program of
// several threads that loads the C library; the collector is at work.
//
//	cgo MIB STATUS
package main

/*
#include <stdlib.h>

static void fill(unsigned char *block, size_t size, unsigned salt)
{
	for (size_t i = 0; i < size; i++)
		block[i] = (unsigned char)((i / 64 * 31 + salt) >> 3);
}

static size_t wrong(const unsigned char *block, size_t size, unsigned salt)
{
	size_t count = 0;
	for (size_t i = 0; i < size; i++)
		count += block[i] != (unsigned char)((i / 64 * 31 + salt) >> 3);
	return count;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

const (
	workers = 4
	piece   = 1 << 16
)

type pair struct {
	ofC  *C.uchar
	ofGo []byte
}

// Half of its share is C's.
func work(pieces int, salt int, wrong *int) {
	pairs := make([]pair, 0, pieces/2)
	for i := 0; i < pieces/2; i++ {
		one := pair{(*C.uchar)(C.malloc(piece)), make([]byte, piece)}
		C.fill(one.ofC, piece, C.uint(salt+i))
		for at := range one.ofGo {
			one.ofGo[at] = byte((at/64*31 + salt + i) >> 3)
		}
		pairs = append(pairs, one)
	}
	for i, one := range pairs {
		*wrong += int(C.wrong(one.ofC, piece, C.uint(salt+i)))
		for at := range one.ofGo {
			if one.ofGo[at] != byte((at/64*31+salt+i)>>3) {
				*wrong++
			}
		}
	}
}

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	status, _ := strconv.Atoi(os.Args[2])
	var all sync.WaitGroup
	wrong := make([]int, workers)
	for i := 0; i < workers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			work(mib<<20/piece/workers, i*1000, &wrong[i])
		}()
	}
	all.Wait()
	fmt.Println("wrong:", wrong)
	os.Exit(status)
}
