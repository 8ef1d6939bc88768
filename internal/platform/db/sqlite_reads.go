package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

const readsTogether = 16 // maximum number of reads that share a transaction

// groupedReads runs short reads of many goroutines in shared read transactions. When a read transaction begins after a
// commit, SQLite empties the connection's page cache. Reads that share a transaction therefore also share the pages
// that they read.
type groupedReads struct {
	db      *sql.DB
	queue   chan *pendingRead
	stopped chan struct{}
	wg      sync.WaitGroup
}

type pendingRead struct {
	ctx  context.Context
	fn   func(querier) error
	err  error
	done chan struct{}
}

// newGroupedReads starts one goroutine for two CPUs. Each goroutine uses one connection of d.
func newGroupedReads(d *sql.DB) *groupedReads {
	g := &groupedReads{db: d, queue: make(chan *pendingRead), stopped: make(chan struct{})}
	n := max(1, runtime.GOMAXPROCS(0)/2)
	d.SetMaxOpenConns(n)
	d.SetMaxIdleConns(n)
	for range n {
		g.wg.Go(g.run)
	}
	return g
}

// stop ends the goroutines and closes their connections. Call stop once.
func (g *groupedReads) stop() {
	close(g.stopped)
	g.wg.Wait()
	g.db.Close()
}

// read waits until a goroutine has run fn. Before fn is run, the wait also ends with ctx.
func (g *groupedReads) read(ctx context.Context, fn func(querier) error) error {
	p := &pendingRead{ctx: ctx, fn: fn, done: make(chan struct{})}
	select {
	case g.queue <- p:
	case <-ctx.Done():
		return ctx.Err()
	case <-g.stopped:
		return unavailable("query", errors.New("the database is closed"))
	}
	<-p.done
	return p.err
}

func (g *groupedReads) run() {
	var r groupReader
	defer r.disconnect()
	group := make([]*pendingRead, 0, readsTogether)
	for {
		select {
		case p := <-g.queue:
			runtime.Gosched() // goroutines that are ready to run may add their reads
			group = g.collect(append(group[:0], p))
		case <-g.stopped:
			return
		}
		err := r.connect(g.db)
		shared := err == nil && len(group) > 1
		if shared {
			err = r.exec("BEGIN")
		}
		for _, p := range group {
			if p.err = err; err == nil {
				p.err = r.run(p)
			}
			close(p.done)
		}
		if shared && r.exec("COMMIT") != nil {
			r.disconnect()
		}
	}
}

// collect adds the reads that wait. All reads of a group have begun to wait before the transaction begins, so that they
// see what was committed before them.
func (g *groupedReads) collect(group []*pendingRead) []*pendingRead {
	for len(group) < readsTogether {
		select {
		case p := <-g.queue:
			group = append(group, p)
		default:
			return group
		}
	}
	return group
}

// groupReader is a connection with its prepared statements. A connection whose transaction did not end is replaced.
type groupReader struct {
	conn  *sql.Conn
	stmts stmtCache
}

func (r *groupReader) connect(d *sql.DB) (err error) {
	if r.conn != nil {
		return nil
	}
	if r.conn, err = d.Conn(context.Background()); err != nil {
		return unavailable("connect", err)
	}
	r.stmts.prepare = r.conn.PrepareContext
	return nil
}

func (r *groupReader) disconnect() {
	if r.conn == nil {
		return
	}
	r.stmts.close()
	r.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not use the connection again
	r.conn.Close()
	r.conn = nil
}

func (r *groupReader) exec(text string) error {
	_, err := r.stmts.exec(context.Background(), text, nil)
	return err
}

// run runs a read and converts a panic to an error, so that the goroutine keeps running.
func (r *groupReader) run(p *pendingRead) (err error) {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in a read: %v\n%s", v, debug.Stack())
		}
	}()
	return p.fn(r)
}

// The statements run without the caller's context, because a statement that is interrupted costs a goroutine, and an
// interrupted connection is of no more use.
func (r *groupReader) query(ctx context.Context, text string, args []any) (Rows, error) {
	rows, err := r.stmts.query(context.WithoutCancel(ctx), text, args)
	if err != nil {
		return nil, readError(err)
	}
	return rows, nil
}

func (r *groupReader) queryRow(ctx context.Context, text string, args []any) Row {
	return r.stmts.queryRow(context.WithoutCancel(ctx), text, args)
}
