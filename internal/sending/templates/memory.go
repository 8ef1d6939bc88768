package templates

import (
	"context"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// These constants limit the memory used for large templates. Texts smaller than memoryLarge are not counted. There are
// separate memory pools for stored and for rendered texts. A request never waits for a pool whose memory it already
// holds, so two requests cannot deadlock.
const (
	memoryMax   = 128 << 20 // size of each pool in bytes
	memoryLarge = 256 << 10 // minimum size, in bytes, of texts that are counted
	memoryCost  = 6         // bytes of memory per byte of text: for the text, its conversion, and the response with both
	memoryWait  = 10 * time.Second
)

// memory limits the memory used for large texts. All teams share the memory pools.
type memory struct{ stored, rendered *fairshare.Pool }

func newMemory() memory {
	return memory{fairshare.New(memoryMax, fairshare.Greed), fairshare.New(memoryMax, fairshare.Greed)}
}

// reserve reserves memory for texts with the given total size, in bytes. If the memory is not available within
// memoryWait, reserve returns an Unavailable fault.
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

// reservation is memory reserved for a result.
type reservation struct{ free func() } // nil if no memory is reserved

// Close releases the reserved memory. A second call to Close has no effect.
func (h reservation) Close() {
	if h.free != nil {
		h.free()
	}
}
