package certs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const (
	purpose = "certificates" // of sealed values

	lockTime  = 30 * time.Second // a lock ends this long after its holder extended it last
	lockEvery = lockTime / 3     // a holder extends its locks this often
	lockPoll  = 500 * time.Millisecond
	lockLimit = 5 * time.Second // of a statement that extends or releases a lock
)

// errClosed is the error of a Storage after Close.
var errClosed = errors.New("the node is stopping")

// Storage implements certmagic.Storage on the database. All nodes of a database share its values and locks. A Storage
// is safe for concurrent use.
type Storage struct {
	db   *db.DB
	keys *keyring.Keyring
	log  *slog.Logger

	mu     sync.Mutex
	closed bool
	uses   sync.WaitGroup  // operations in progress
	held   map[string]lock // by name
}

// lock is a lock that this process holds.
type lock struct {
	holder string
	stop   context.CancelFunc // ends its extension
}

var _ certmagic.Storage = (*Storage)(nil)

// NewStorage returns a Storage. The caller must call Close before it closes the database.
func NewStorage(d *db.DB, keys *keyring.Keyring, log *slog.Logger) *Storage {
	return &Storage{db: d, keys: keys, log: log, held: map[string]lock{}}
}

// String keeps loggers from printing the fields.
func (s *Storage) String() string { return "database" }

// Close waits for operations in progress, releases all locks, and makes all later operations fail. The library's
// goroutines may outlive their context for a moment, and the database must not be used after it is closed.
func (s *Storage) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.uses.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	s.mu.Lock()
	held := s.held
	s.held = map[string]lock{}
	s.mu.Unlock()
	for name, l := range held {
		l.stop()
		if err := s.release(ctx, name, l.holder); err != nil {
			s.log.Warn("a lock for certificates was not released; it ends by itself", "name", name, "error", err)
		}
	}
}

// begin registers an operation. If err is nil, the caller must call done.
func (s *Storage) begin() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	s.uses.Add(1)
	return s.uses.Done, nil
}

// Store implements certmagic.Storage.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	sealed, err := s.keys.Seal(purpose, value, []byte(key))
	if err != nil {
		return fmt.Errorf("seal %s: %w", key, err)
	}
	return s.put(ctx, key, sealed)
}

// Load implements certmagic.Storage.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	done, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	sealed, err := s.get(ctx, key)
	if err != nil {
		return nil, err
	}
	value, err := s.keys.Open(purpose, sealed, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return value, nil
}

// Delete implements certmagic.Storage.
func (s *Storage) Delete(ctx context.Context, key string) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	return s.remove(ctx, key)
}

// Exists implements certmagic.Storage.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// List implements certmagic.Storage.
func (s *Storage) List(ctx context.Context, prefix string, recursive bool) ([]string, error) {
	done, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	paths, err := s.below(ctx, prefix, listMax)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, p := range paths {
		rest := strings.TrimPrefix(p, prefix+"/")
		if !recursive {
			rest, _, _ = strings.Cut(rest, "/")
		}
		if child := path.Join(prefix, rest); len(all) == 0 || all[len(all)-1] != child {
			all = append(all, child)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("list %s: %w", prefix, fs.ErrNotExist)
	}
	return all, nil
}

// Stat implements certmagic.Storage.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	done, err := s.begin()
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	defer done()
	size, changed, err := s.stat(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: changed, Size: size, IsTerminal: true}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return certmagic.KeyInfo{}, err
	}
	paths, errList := s.below(ctx, key, 1)
	switch {
	case errList != nil:
		return certmagic.KeyInfo{}, errList
	case len(paths) == 0:
		return certmagic.KeyInfo{}, err
	}
	return certmagic.KeyInfo{Key: key}, nil
}

// Lock implements certmagic.Locker. A lock ends by itself lockTime after its process was killed.
func (s *Storage) Lock(ctx context.Context, name string) error {
	holder := rand.Text()
	for {
		ok, err := s.tryLock(ctx, name, holder)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// tryLock takes a lock for a new holder, and extends it until Unlock is called.
func (s *Storage) tryLock(ctx context.Context, name, holder string) (bool, error) {
	done, err := s.begin()
	if err != nil {
		return false, err
	}
	defer done()
	ok, err := s.take(ctx, name, holder)
	if !ok || err != nil {
		return false, err
	}
	until, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	s.held[name] = lock{holder, stop}
	s.mu.Unlock()
	go s.extend(until, name, holder)
	return true, nil
}

// extend extends a lock until ctx ends.
func (s *Storage) extend(ctx context.Context, name, holder string) {
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if ok, err := s.extendOnce(ctx, name, holder); ctx.Err() == nil && (err != nil || !ok) {
			s.log.Warn("a lock for certificates was not extended; another node may request the same certificate",
				"name", name, "error", err)
		}
	}
}

func (s *Storage) extendOnce(ctx context.Context, name, holder string) (bool, error) {
	done, err := s.begin()
	if err != nil {
		return false, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	return s.prolong(ctx, name, holder)
}

// Unlock implements certmagic.Locker. It also works after ctx has ended, because a stopped request has a lock too.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	s.mu.Lock()
	l, ok := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("release the lock %s: %w", name, fs.ErrNotExist)
	}
	l.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockLimit)
	defer cancel()
	return s.release(ctx, name, l.holder)
}
