package keyring

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

// AppendTag and Tag return the same tags, even in concurrent calls.
func TestAppendTag(t *testing.T) {
	t.Parallel()
	k := testRing(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			purpose := fmt.Sprint("purpose ", i%3)
			one := k.Tagger(purpose)
			defer one.Release()
			for n := range 100 {
				data := fmt.Append(nil, n)
				want := k.Tag(purpose, data, 16)
				got := k.AppendTag([]byte("before "), purpose, data, 16)
				if again := one.Append(nil, data, 16); !bytes.Equal(got, append([]byte("before "), want...)) ||
					!bytes.Equal(again, want) {
					t.Errorf("AppendTag = %x and Append = %x, want %x", got, again, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestTaggerAllocatesNothing(t *testing.T) {
	k := testRing(t)
	one := k.Tagger("track")
	defer one.Release()
	data, dst := make([]byte, 200), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { one.Append(dst, data, 16) }); n != 0 {
		t.Errorf("a tag takes %v allocations", n)
	}
}
