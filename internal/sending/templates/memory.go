package templates

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// Limits of the memory for large templates. Texts below memoryLarge are not counted. Stored texts and rendered ones
// have separate pools. No request holds memory of the pool that it waits for, so two requests cannot wait for each
// other.
const (
	memoryMax   = 128 << 20 // bytes of a pool
	memoryLarge = 256 << 10 // bytes of text from which memory is counted
	memoryCost  = 6         // memory per byte of text: the text, its conversion, and the response with both
	memoryWait  = 10 * time.Second
)

// memory limits the memory of large texts. Teams share it.
type memory struct{ stored, rendered *fairshare.Pool }

func newMemory() memory {
	return memory{fairshare.New(memoryMax, fairshare.Greed), fairshare.New(memoryMax, fairshare.Greed)}
}

// reserve reserves memory for texts of a size in bytes. It waits, and returns an Unavailable fault if there is no
// memory in time.
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
type reservation struct{ free func() } // nil if nothing is reserved

// Close releases the memory. Further calls do nothing.
func (h reservation) Close() {
	if h.free != nil {
		h.free()
	}
}
