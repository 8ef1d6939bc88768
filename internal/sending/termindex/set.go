package termindex

import (
	"iter"
	"math/bits"
)

// Set is a set of documents of a segment.
type Set struct{ words []uint64 }

func (s *Set) add(first, end int) {
	for len(s.words) < (end+63)/64 {
		s.words = append(s.words, 0)
	}
	for d := first; d < end; d++ {
		if d%64 == 0 && end-d >= 64 {
			s.words[d/64] = ^uint64(0)
			d += 63
			continue
		}
		s.words[d/64] |= 1 << (d % 64)
	}
}

// Intersect removes the documents that the other set does not have.
func (s *Set) Intersect(other *Set) {
	if len(s.words) > len(other.words) {
		s.words = s.words[:len(other.words)]
	}
	for i := range s.words {
		s.words[i] &= other.words[i]
	}
}

// Empty reports whether the set has no documents.
func (s *Set) Empty() bool {
	for _, w := range s.words {
		if w != 0 {
			return false
		}
	}
	return true
}

// Ascending iterates over the documents from the lowest to the highest number.
func (s *Set) Ascending() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Descending iterates over the documents from the highest to the lowest number.
func (s *Set) Descending() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := len(s.words) - 1; i >= 0; i-- {
			for w := s.words[i]; w != 0; {
				b := 63 - bits.LeadingZeros64(w)
				if !yield(i*64 + b) {
					return
				}
				w &^= 1 << b
			}
		}
	}
}
