package certs

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

const (
	tokenMax = 256 // bytes
	// readingEvery is the shortest time between two readings of the challenges in progress.
	readingEvery = 500 * time.Millisecond
)

// challengeList finds the challenges that any node has in progress. Anybody can ask for a challenge, so all requests
// share readings of the list, of which there are at most two a second. A limit of requests would not do: somebody who
// asks for many challenges could use it up, and the authority's own requests would fail.
//
// A request for a challenge that the last reading has not found waits for a reading that begins later.
type challengeList struct {
	storage *Storage

	mu   sync.Mutex
	last *reading // may be in progress
}

// reading is one reading of the paths of all challenges in progress.
type reading struct {
	began time.Time
	done  chan struct{}
	paths []string // in order, after done is closed
	err   error

	mu    sync.Mutex
	found map[string]acme.Challenge // those that were asked for
}

// find returns a challenge in progress, or fs.ErrNotExist.
func (l *challengeList) find(ctx context.Context, kind, key string) (c acme.Challenge, err error) {
	if key == "" || len(key) > tokenMax || strings.ContainsAny(key, "/\x00") {
		return c, fs.ErrNotExist
	}
	path := challengePath(kind, key)
	for asked := time.Now(); ; {
		r := l.latest()
		select {
		case <-r.done:
		case <-ctx.Done():
			return c, ctx.Err()
		}
		if _, ok := slices.BinarySearch(r.paths, path); ok {
			return r.load(ctx, l.storage, path)
		}
		if !r.began.Before(asked) {
			if r.err != nil {
				return c, r.err
			}
			return c, fs.ErrNotExist
		}
		select {
		case <-time.After(time.Until(r.began.Add(readingEvery))):
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}

// latest returns the last reading, or a new one if it is time for one.
func (l *challengeList) latest() *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.last; r != nil {
		select {
		case <-r.done:
			if time.Since(r.began) < readingEvery {
				return r
			}
		default:
			return r
		}
	}
	r := &reading{began: time.Now(), done: make(chan struct{}), found: map[string]acme.Challenge{}}
	l.last = r
	go func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(context.Background(), challengeLimit)
		defer cancel()
		r.paths, r.err = l.storage.listChallenges(ctx)
	}()
	return r
}

// load returns the challenge at a path. Each challenge is read once for a reading.
func (r *reading) load(ctx context.Context, s *Storage, path string) (c acme.Challenge, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.found[path]; ok {
		return c, nil
	}
	value, err := s.Load(ctx, path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return c, fmt.Errorf("decode a challenge: %w", err)
	}
	r.found[path] = c
	return c, nil
}

// listChallenges returns the paths of all challenges in progress, in byte order.
func (s *Storage) listChallenges(ctx context.Context) ([]string, error) {
	done, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	return s.below(ctx, challengesPath, listMax)
}
