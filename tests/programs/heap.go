// A map of many small records, built and read, with the garbage collector at work.
//
//	heap MIB
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
)

type record struct {
	key  int
	text [40]byte
	next *record
}

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	count := mib << 20 / 160
	records := make(map[int]*record)
	var last *record
	for i := 0; i < count; i++ {
		one := &record{key: i, next: last}
		copy(one.text[:], strconv.Itoa(i)+" is the number of this record")
		records[i] = one
		last = one
	}
	sum := 0
	for at, key := last, count-1; at != nil; at, key = at.next, key-1 {
		if at.key != key || records[key] != at {
			fmt.Println("wrong at", key)
			os.Exit(1)
		}
		sum += int(at.text[0])
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Println("ok", sum, stats.NumGC > 0)
}
