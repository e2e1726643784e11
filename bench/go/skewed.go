// A map of byte slices, built and then read with keys of which few are wanted often, with the garbage collector at work.
// Prints a checksum, which depends on the arguments alone.
//
//	skewed MIB READS SKEW
//
// SKEW is the exponent of Zipf's law, above 1; with 0 all keys are wanted as often.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"time"
)

const (
	sizeMin = 64
	sizeMax = 512
	// Beside its bytes a record has its place in the map.
	overhead = 56
	// A large odd number: the most wanted keys lie anywhere.
	scatter = 0x9e3779b97f4a7c15
)

// A record begins with noise and goes on with text, as records do.
func record(key int64, random *rand.Rand) []byte {
	one := make([]byte, sizeMin+random.Intn(sizeMax-sizeMin))
	random.Read(one[:len(one)/4])
	text := "record " + strconv.FormatInt(key, 10) + " of the table, "
	for at := len(one) / 4; at < len(one); {
		at += copy(one[at:], text)
	}
	return one
}

func key(nth uint64) int64 { return int64(nth * scatter >> 1) }

func build(mib int) (map[int64][]byte, uint64) {
	random := rand.New(rand.NewSource(1))
	records := make(map[int64][]byte)
	count := uint64(0)
	for left := mib << 20; left > 0; count++ {
		one := record(int64(count), random)
		records[key(count)] = one
		left -= len(one) + overhead
	}
	return records, count
}

func read(records map[int64][]byte, count uint64, reads int, skew float64) uint64 {
	random := rand.New(rand.NewSource(2))
	next := func() uint64 { return random.Uint64() % count }
	if skew > 1 {
		next = rand.NewZipf(random, skew, 1, count-1).Uint64
	}
	sum := uint64(0)
	for i := 0; i < reads; i++ {
		one := records[key(next())]
		sum = sum*31 + uint64(one[0]) + uint64(one[len(one)-1])
		// What a request makes is garbage soon.
		answer := append([]byte(nil), one...)
		sum += uint64(len(answer))
		if i%64 == 0 {
			// One in so many is replaced.
			records[key(next())] = answer
		}
	}
	return sum
}

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	reads, _ := strconv.Atoi(os.Args[2])
	skew, _ := strconv.ParseFloat(os.Args[3], 64)
	start := time.Now()
	records, count := build(mib)
	built := time.Now()
	sum := read(records, count, reads, skew)
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Printf("CHECK %d records, %x\n", len(records), sum)
	fmt.Fprintf(os.Stderr, "built in %.1f s, read in %.1f s, %d collections\n",
		built.Sub(start).Seconds(), time.Since(built).Seconds(), stats.NumGC)
}
