// Keeps LIVE MiB of records in a map, and replaces records at random, ROUNDS times as many as there are.
package main

import (
	"fmt"
	"os"
	"strconv"
)

type record struct {
	id     int
	values [24]uint32
	name   string
}

var state uint32 = 12345

func random(below int) int {
	state = state*1664525 + 1013904223
	return int(uint64(state) * uint64(below) >> 32)
}

func fresh(id int) *record {
	one := &record{id: id, name: "record " + strconv.Itoa(id) + " of kind " + strconv.Itoa(random(100))}
	for i := range one.values {
		one.values[i] = uint32(random(1000000))
	}
	return one
}

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	rounds, _ := strconv.Atoi(os.Args[2])
	count := mib << 20 / 220
	all := make(map[int]*record, count)
	for id := 0; id < count; id++ {
		all[id] = fresh(id)
	}
	for n := 0; n < rounds*count; n++ {
		id := random(count)
		one := fresh(id)
		one.values[0] = all[id].values[23]
		all[id] = one
	}
	sum := 0
	for id := 0; id < count; id++ {
		sum = sum*31 + int(all[id].values[0]) + len(all[id].name)
	}
	fmt.Println(count, "records", sum)
}
