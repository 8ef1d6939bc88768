package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	moveTopic = "move" // topic of the hints by which a command asks the node to pause

	moveDrain    = 8 * time.Second  // maximum wait for deliveries in progress before the pause
	moveAnswer   = 15 * time.Second // maximum wait of the command for the pause of the node, in addition
	moveRequest  = 10 * time.Second // maximum age of a request to pause
	movePoll     = 100 * time.Millisecond
	movePauseMax = time.Minute // after this time, the node continues, unless the installation was moved
	moveRetry    = "5"         // Retry-After of responses during the pause, in seconds
)

// errMoveInProgress means that another process is moving the installation.
var errMoveInProgress = errors.New("another `postrider promote` is moving this installation: wait until it has ended")

// LockMove locks the installation against other moves until the result is closed or the process ends. While it is
// locked, a paused node stays paused.
func LockMove(c config.Config) (*Lock, error) {
	f, err := lockFile(c.DataDir, "promote.lock")
	if errors.Is(err, errLocked) {
		return nil, errMoveInProgress
	}
	if err != nil {
		return nil, fmt.Errorf("lock the move: %w", err)
	}
	return f, nil
}

// PauseNode pauses the node that uses data_dir, for the end of a move. The database is that of the installation, opened
// beside the node. The pause ends when the command closes the lock of LockMove. If no node runs, PauseNode keeps one
// from starting until the returned function is called.
func PauseNode(ctx context.Context, c config.Config, d *db.DB) (resume func(), err error) {
	lock, err := LockFolder(c)
	if err == nil {
		return func() { lock.Close() }, nil
	}
	if !errors.Is(err, ErrFolderInUse) {
		return nil, err
	}
	token := id.New()
	ctx, cancel := context.WithTimeout(ctx, moveDrain+moveAnswer)
	defer cancel()
	tick := time.NewTicker(movePoll)
	defer tick.Stop()
	for {
		d.Hint(moveTopic, token+" "+strconv.FormatInt(time.Now().UnixMilli(), 10))
		d.SendHints(ctx)
		if paused, err := d.Fact(ctx, db.FactPaused); err == nil && paused == token {
			return func() {}, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("the node did not pause: it is of an older release, or very busy; run this command again, " +
				"or stop the node first")
		case <-tick.C:
		}
	}
}

// warnOfMove logs a warning if a move to another database has begun and is not complete. Until then, each change is
// recorded, which takes space.
func (n *Node) warnOfMove(ctx context.Context) error {
	begun, err := n.DB.Fact(ctx, db.FactMoveID)
	if err == nil && begun != "" {
		_, to, _ := strings.Cut(begun, " ")
		n.Log.Warn("a move of this installation has begun and is not complete, so changes are recorded: run `postrider "+
			"promote` again, or `postrider promote --cancel`", "to", to)
	}
	return err
}

// listenForMove subscribes to requests to pause.
func (n *Node) listenForMove() {
	n.pauseAsked = make(chan string, 1)
	n.DB.OnHint(moveTopic, func(payload string) {
		token, at, _ := strings.Cut(payload, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil || time.Since(time.UnixMilli(ms)).Abs() > moveRequest {
			return // a request of a command that has ended
		}
		select {
		case n.pauseAsked <- token:
		default:
		}
	})
}

// followMoves pauses the node when a command asks for it, until ctx ends.
func (n *Node) followMoves(ctx context.Context) error {
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case token := <-n.pauseAsked:
			if token == last {
				continue // the command repeats its requests
			}
			last = token
			n.pauseForMove(ctx, token)
		}
	}
}

// pauseForMove pauses the node until the move has failed. If it has succeeded, the node stays paused until it stops.
func (n *Node) pauseForMove(ctx context.Context, token string) {
	n.Log.Info("pausing for the end of a move to another database")
	drain, cancel := context.WithTimeout(ctx, moveDrain)
	left := n.runner.Pause(drain)
	cancel()
	n.paused.Store(true)
	err := n.DB.Freeze(ctx, func(tx *db.Tx) error {
		db.SetFact(ctx, tx, db.FactPaused, token)
		return nil
	})
	if err == nil {
		n.Log.Info("paused: requests are answered with 503 until the move has ended", "jobs_in_progress", left)
		if n.awaitMove(ctx) {
			<-ctx.Done()
			return
		}
	} else {
		n.Log.Error("the node could not pause for the end of a move", "error", err)
	}
	n.DB.Thaw()
	n.paused.Store(false)
	n.runner.Resume()
	n.Log.Info("the move was not completed; the node continues as before")
}

// awaitMove waits until the command has ended, and reports whether the installation was moved.
func (n *Node) awaitMove(ctx context.Context) bool {
	tick := time.NewTicker(movePoll)
	defer tick.Stop()
	for start := time.Now(); ctx.Err() == nil; {
		lock, err := LockMove(n.Config)
		ended := err == nil
		to, factErr := n.DB.Fact(ctx, db.FactMovedTo)
		if ended {
			lock.Close()
		}
		if factErr == nil && to != "" {
			n.Log.Error("this installation was moved: stop this node, set database_url to the new database, and start it again",
				"moved_to", to)
			n.movedTo.Store(&to)
			return true
		}
		// The file itself refuses changes after the move, so it is safe to continue.
		if ended && factErr == nil || time.Since(start) > movePauseMax {
			return false
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return false
}

// unlessPaused answers all requests with 503 while the node is paused for the end of a move. Health checks of the
// process go on.
func (n *Node) unlessPaused(h http.Handler) http.Handler {
	away := fault.New(fault.Unavailable, "", "The installation is being moved to another database. Try again in a moment.")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.paused.Load() || r.URL.Path == "/healthz" {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Retry-After", moveRetry)
		wire.WriteError(w, away)
	})
}
