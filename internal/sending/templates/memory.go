package templates

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// Limits of the memory for large templates. Nothing is counted below memoryLarge. Stored texts and what is made of
// them have a pool each, so that no two requests wait for each other: a request never holds memory of the pool that it
// waits for.
const (
	memoryMax   = 128 << 20 // octets of a pool
	memoryLarge = 256 << 10 // octets of texts that are counted
	memoryCost  = 6         // memory for one octet of text: itself, the text made from it, and the answer with both
	memoryWait  = 10 * time.Second
)

// memory is what large texts occupy. Teams share it.
type memory struct{ stored, rendered *fairshare.Pool }

func newMemory() memory {
	return memory{fairshare.New(memoryMax, fairshare.Greed), fairshare.New(memoryMax, fairshare.Greed)}
}

// reserve reserves memory for texts of a size in octets. It waits for it, and returns an Unavailable fault if there is
// none in time.
func reserve(ctx context.Context, pool *fairshare.Pool, teamID string, size int64) (reservation, error) {
	if size < memoryLarge {
		return reservation{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	size *= memoryCost
	if err := pool.Acquire(ctx, teamID, size); err != nil {
		return reservation{}, fault.New(fault.Unavailable, "",
			"Too many large templates are being read. Try again in a moment.").Because(err)
	}
	return reservation{sync.OnceFunc(func() { pool.Release(teamID, size) })}, nil
}

// reservation is memory that a result occupies.
type reservation struct{ free func() } // nil for none

// Close gives the memory back, once the result is not needed any more. Closing again does nothing.
func (h reservation) Close() {
	if h.free != nil {
		h.free()
	}
}
